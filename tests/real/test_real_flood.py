"""Eight ranks of a real MPI that print as fast as they can, tens of thousands of lines a second."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.real.nodes_here import properties

pytestmark = pytest.mark.real

RANKS, LINES = 8, 50_000
MATRIX = f"""\
name: flood
hardware:
  cpu: {{platform: cpu}}
axes:
  placement: {{eight: [{", ".join(["cpu"] * RANKS)}]}}
  transport: {{ob1-tcp: {{family: ob1}}}}
  workload: {{flood: {{kind: fault, fault: flood}}}}
"""
WATCHED = (
    "import resource\n"
    "def test_cell(run):\n"
    "    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    "    run()\n"
    "    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
    "    assert grown < 64 * 1024, f'pytest grew by {grown} KiB'\n"
)


def flood(pytester: pytest.Pytester, stack_prefix: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Path:
    """Runs the cell, which must pass; its log."""
    monkeypatch.setenv("HETGPU_STACKS", str(stack_prefix.parent))
    pytester.path.joinpath("flood.yaml").write_text(MATRIX)
    pytester.path.joinpath("test_watched.py").write_text(WATCHED)
    done = pytester.runpytest_subprocess(
        *("-p", "no:cacheprovider", "--hetgpu-matrix", "flood.yaml", "test_watched.py", *options), timeout=300
    )
    assert done.ret == 0
    return pytester.path / "reports/latest/scenarios/eight-ob1-tcp-flood/output.log"


@pytest.mark.nightly(reason="half a minute; the test of the limit floods on each push")
def test_nothing_is_lost_or_mixed_up(
    pytester: pytest.Pytester, stack_prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = flood(pytester, stack_prefix, monkeypatch)
    dots = b"UCX  ERROR of no meaning: Segmentation fault, out of memory, connection refused " + b"." * 400
    found: Counter[bytes] = Counter()
    with log.open("rb") as lines:
        found.update(line[1:6] for line in lines if line.startswith(b"[") and line[8:].rstrip(b"\n") == dots)
    assert len(found) == LINES
    assert set(found.values()) == {RANKS}


def test_more_than_the_limit_leaves_beginning_and_end(
    pytester: pytest.Pytester, stack_prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = flood(pytester, stack_prefix, monkeypatch, "--hetgpu-output", "16M")
    assert log.stat().st_size < 17 << 20
    (cell,) = properties(pytester.path / "reports").values()
    assert "bytes from the middle of its output were not kept (--hetgpu-output)" in cell["notes"]
