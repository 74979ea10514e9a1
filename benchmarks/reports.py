"""What reports of large runs take: time, and bytes of each file.

python benchmarks/reports.py [CELLS [FAILING [BYTES OF LOGS]]]      (10000 10000 1000000000)
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.reporting import junit, report
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, PASSED, job, result

RERUN = "pytest --hetgpu-cell {label}"
END = b"".join(b"[node0:163] line %d of the end of a log of ordinary width\n" % number for number in range(200))
CURVE = tuple(Measurement("busbw", 1.0 + i, "GB/s", MessagePoint(8 << i, "float32"), 2) for i in range(20))


def made(place: Path, cells: int, failing: int, logs: int) -> RunFolder:
    """A run whose logs are holes but for their ends."""
    folder = RunFolder.create(place)
    with closing(Journal(folder.path, "main")) as journal:
        journal.run([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        for i in range(cells):
            label = f"p{i % 10}-t{i // 10 % 10}-w{i // 100}"
            one = job(label)
            with folder.prepare(label).open("wb") as log:
                log.seek(max(0, logs // cells - len(END)))
                log.write(END)
            journal.planned(one)
            journal.started(one)
            journal.finished(one, result())
            journal.judged(one, replace(CRASHED if i < failing else PASSED, measurements=CURVE))
    return folder


def timed(name: str, work: Callable[[], object]) -> None:
    before = time.perf_counter()
    work()
    print(f"{name:12} {time.perf_counter() - before:7.1f} s")


def main() -> None:
    given = [int(text) for text in sys.argv[1:]]
    cells, failing, logs = (*given, *(10_000, 10_000, 10**9)[len(given) :])
    with tempfile.TemporaryDirectory() as place:
        folder = made(Path(place), cells, failing, logs)
        print(f"{cells} cells, {failing} fail, {logs / 1e9:.2f} GB of logs; load {os.getloadavg()[0]:.1f}")
        timed("junit.xml", lambda: junit.render(read_run(folder.path), folder, RERUN))
        timed("all reports", lambda: report.build(folder.path, RERUN))
        for name in ("junit.xml", "summary.md", "index.html"):
            print(f"{name:12} {(folder.path / name).stat().st_size / 1e6:7.2f} MB")


if __name__ == "__main__":
    main()
