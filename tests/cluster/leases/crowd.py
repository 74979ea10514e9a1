"""One of many that want the same host again and again: `crowd.py TIMES SECONDS` prints `IN_LINE GRANTED FREED` a turn.

Who need not wait is not in line before it is granted.
"""

from __future__ import annotations

import sys
import time

from pytest_hetgpu.cluster.leases.hold import hold
from pytest_hetgpu.cluster.leases.host_lock import WaitQueue
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest

times, seconds = int(sys.argv[1]), float(sys.argv[2])
leases = [LeaseRequest(name, name) for name in sys.argv[3:]]
print("ready", flush=True)
sys.stdin.readline()
join = WaitQueue.join
joined: list[float] = []


def noted(line: WaitQueue) -> bool:
    """Joins, and notes when."""
    done = join(line)
    joined.append(time.monotonic())
    return done


WaitQueue.join = noted  # type: ignore[assignment]
for _ in range(times):
    joined.clear()
    with hold(leases):
        granted = time.monotonic()
        in_line = joined[-1] if joined else granted
        time.sleep(seconds)  # as whoever waits for a job does
        freed = time.monotonic()
    print(in_line, granted, freed, flush=True)
