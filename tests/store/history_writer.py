"""Stores many runs in the history of HETGPU_HISTORY: NAME COUNT. Prints `ready`, and begins after a line of input."""

from __future__ import annotations

import os
import sys

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.history_place import VARIABLE, parse_place
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

ROWS = tuple(Measurement("latency", 1.0, "us", MessagePoint(8 << place, "float32"), 2) for place in range(20))


def main(name: str, count: int) -> None:
    where = parse_place(os.environ[VARIABLE], VARIABLE)
    print("ready", flush=True)
    sys.stdin.readline()
    cells = tuple(CellSummary("m", f"cell{place}", Kind.PASSED, Verdict.OK, measurements=ROWS) for place in range(20))
    for place in range(count):
        said = history.put(where, RunSummary(f"{name}-{place}", "/r", float(place), name, "0", (), cells))
        if said:
            print(said, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
