"""A process that puts many runs into a history: FILE NAME COUNT. Says `ready`, and begins when a line comes."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.run_summary import PastCell, PastRun

ROWS = tuple(Measurement("latency", 1.0, "us", MessagePoint(8 << place, "float32"), 2) for place in range(20))


def main(file: str, name: str, count: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    cells = tuple(PastCell("m", f"cell{place}", Kind.PASSED, Verdict.OK, measurements=ROWS) for place in range(20))
    for place in range(count):
        said = history.put(Path(file), PastRun(f"{name}-{place}", "/r", float(place), name, "0", (), cells))
        if said:
            print(said, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
