"""One of many that want the same host again and again: `crowd.py TIMES SECONDS` prints `ASKED GRANTED FREED` a turn."""

from __future__ import annotations

import sys
import time

from pytest_hetgpu.leases.hold import Wanted, hold

times, seconds = int(sys.argv[1]), float(sys.argv[2])
leases = [Wanted(name, name) for name in sys.argv[3:]]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(times):
    asked = time.monotonic()
    with hold(leases):
        granted = time.monotonic()
        time.sleep(seconds)  # as whoever waits for a job does
        freed = time.monotonic()
    print(asked, granted, freed, flush=True)
