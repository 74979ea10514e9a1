"""What is new, in the words of the terminal's last lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_hetgpu.analysis.compare.sides import Side
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.session.terminal.changes import since, unexpected
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.properties import CellProperties
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

KEY = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"
OK = CellSummary("aws", "a", Kind.PASSED, Verdict.OK)
BAD = CellSummary("aws", "a", Kind.CRASH, Verdict.NEW, signature=KEY)


def pairs(label: str, kind: Kind, verdict: Verdict, why: str = "", signature: str = "") -> CellProperties:
    return CellProperties(label, "aws", kind, verdict, why=why, signature=signature)


def run(*cells: CellSummary, name: str = "20261120-020000-aaaa", started: float = 1.7e9) -> RunSummary:
    return RunSummary(name, "/runs", started, "vm", "0.1", (MatrixFile("aws", "aws.yaml", ""),), cells)


def told(was: Sequence[CellSummary], now: Sequence[CellSummary]) -> list[str]:
    cells = {(one.matrix, one.scenario): one for one in now}
    return [line for line, _ in since(Side("x", (run(*was),)), cells, {})]


def test_equal_failures_are_one_line_and_new_ones_come_first() -> None:
    seen = [
        pairs("f", Kind.PASSED, Verdict.FIXED, f"expected crash {KEY}"),
        *(pairs(f"c{i}", Kind.CRASH, Verdict.NEW, "x", KEY) for i in range(6)),
        pairs("h", Kind.HANG, Verdict.CHANGED, "no output"),
        pairs("k", Kind.CRASH, Verdict.KNOWN, "x", KEY),
        pairs("o", Kind.PASSED, Verdict.OK),
    ]
    assert [line for line, _ in unexpected(seen)] == [
        f"new: {KEY} (6 cells: c0, c1, c2, c3 and 2 more)",
        "changed: hang: no output (h)",
        f"fixed: passed: expected crash {KEY} (f)",
    ]


def test_a_warning_of_preflight_that_was_certain_of_the_outcome_is_beside_it() -> None:
    certain = "node 0 (mp): its mpirun is Open MPI 4.1.4 (launch_failure); install it"
    possible = "node 1 (mp): its clock is off (possible launch_failure); set it"
    failed = pairs("a", Kind.LAUNCH_FAILURE, Verdict.NEW, "x", "bad-option@mpirun")
    told = [
        line
        for warnings in (f"{possible} | {certain}", possible, certain.replace("launch_failure", "crash"))
        for line, _ in unexpected([replace(failed, preflight=warnings)])
    ]
    plain = "new: bad-option@mpirun (a)"
    assert told == [f"new: bad-option@mpirun; preflight: {certain} (a)", plain, plain]


def test_against_the_run_before() -> None:
    name = "20261120-020000-aaaa (2023-11-14 22:13 UTC)"
    assert told([OK], [OK]) == [f"since {name}: 1 cell is as it was"]
    assert told([OK], [OK, replace(OK, scenario="b")]) == [f"since {name}: 1 cell is as it was, 1 was not in it"]
    assert told([OK, replace(OK, scenario="b")], [BAD]) == [
        f"since {name}:",
        f"  worse: was passed, is crash {KEY} (a)",
    ]
    assert told([BAD], [OK])[1] == f"  better: was crash {KEY}, is passed (a)"
    gone = CellSummary("aws", "a", Kind.SKIPPED, Verdict.NOT_RUN, why="needs platform=rocm")
    assert told([OK], [gone])[1] == "  worse: was passed, is not run (needs platform=rocm) (a)"


def test_hostile_words_stay_words() -> None:
    (line, _) = next(iter(unexpected([pairs("a", Kind.ERROR, Verdict.CHANGED, "\x1b[31mred\nline", "\x07k")])))
    assert line == "changed: k: red line (a)"
