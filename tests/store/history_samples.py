"""Runs for tests of the history, and processes that write it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import strategies as st

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.history_place import DatabaseUrl, HistoryPlace
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary
from tests.postgresql_server import variable
from tests.reporting.report_samples import KEY

WRITER = Path(__file__).with_name("history_writer.py")
ROOT = Path(__file__).resolve().parents[2]

GOOD = CellSummary(
    "aws",
    "a-b-c",
    Kind.PASSED,
    Verdict.OK,
    axes={"placement": "a"},
    seconds=1.5,
    stack="Open MPI 5.0.11",
    transports=("tcp", "sm"),
    facts={"ucx": "1.18.0", "memory": "host"},
    tool="allreduce.py",
    measurements=(
        Measurement("busbw", 1.25, "GB/s", MessagePoint(1024, "float32"), 2),
        Measurement("busbw", 1.5, "GB/s", MessagePoint(1024, "float32", "in"), 2, (1.5, 1.25, 1.75)),
    ),
)
TIME = Measurement("latency", 1 / 3, "us", MessagePoint(8, "float32"), 2, (1 / 3, 12345678.9))
BAD = CellSummary("aws", "a-b-d", Kind.CRASH, Verdict.NEW, signature=KEY, why="rank 0 died")
RUN = RunSummary(
    "20261120-141530-3f2a", "/r/x", 1.7e9, "h", "0.1", (MatrixFile("aws", "aws.yaml", "0" * 64),), (GOOD, BAD)
)

WILD = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
POINTS = st.builds(MessagePoint, st.integers(), WILD, WILD)
SAMPLES = st.lists(st.floats(), max_size=3).map(tuple)
NUMBERS = st.builds(Measurement, WILD, st.floats(), WILD, POINTS, st.integers(), SAMPLES)
CELLS = st.builds(
    CellSummary,
    WILD,
    WILD,
    st.sampled_from(Kind),
    st.sampled_from(Verdict),
    axes=st.dictionaries(WILD, WILD, max_size=3),
    seconds=st.floats(),
    transports=st.lists(WILD, max_size=3).map(tuple),
    measurements=st.lists(NUMBERS, max_size=3).map(tuple),
)


def ids(place: HistoryPlace) -> list[str]:
    return [listed.id for listed in history.list_runs(place)]


def start(place: HistoryPlace, name: str, count: int) -> subprocess.Popen[str]:
    """Start a process that writes `count` runs once its standard input has a line."""
    given = variable(place) if isinstance(place, DatabaseUrl) else {"HETGPU_HISTORY": str(place)}
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **given}
    command = [sys.executable, str(WRITER), name, str(count)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    assert writer.stdout
    assert writer.stdout.readline() == "ready\n"
    return writer


def go(writer: subprocess.Popen[str]) -> None:
    """Let a process write."""
    assert writer.stdin
    writer.stdin.write("go\n")
    writer.stdin.flush()
