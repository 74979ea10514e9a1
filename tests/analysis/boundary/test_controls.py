"""The next further run for the conditions of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.analysis.boundary.condition import State
from pytest_hetgpu.analysis.boundary.controls import Control, next_control, next_derived
from pytest_hetgpu.analysis.boundary.jobs import CellJobs
from pytest_hetgpu.analysis.boundary.of_run import MatrixRuns, matrices_of
from pytest_hetgpu.analysis.boundary.words import state_text, where
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.outcome import Attempt, Outcome
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.planning.derived import Alias, DerivedCell, Doubts
from pytest_hetgpu.planning.variant import Variant
from pytest_hetgpu.store.cells import NEVER_STARTED, CellRecord
from pytest_hetgpu.store.events import Controlled

KEY = "SIGSEGV@lib!f"
SWEEP = tuple(MessagePoint(1024 << step, "float32") for step in range(4))


def cell(transport: str, workload: str, outcome: Outcome = NEVER_STARTED) -> CellRecord:
    label = f"{transport}-{workload}"
    return CellRecord("m", label, label, {"transport": transport, "workload": workload}, outcome=outcome)


PASSED = Outcome(Kind.PASSED, Verdict.OK)
CRASHED = Outcome(Kind.CRASH, Verdict.NEW, signature=Signature(Kind.CRASH, KEY, "line", 1))
CELLS = [
    cell("tcp", "guarded", CRASHED),
    cell("shm", "send", PASSED),
    *(cell(*names) for names in (("tcp", "send"), ("shm", "guarded"), ("rc", "guarded"), ("rc", "send"))),
]


class Sweeps(CellJobs):
    def points(self, cell: CellRecord) -> Sequence[MessagePoint]:
        return SWEEP if cell.outcome.measurements else ()


def loop(cells: list[CellRecord], fails: str, most: int = 20) -> tuple[list[Control], MatrixRuns]:
    """Run controls: cells whose label has `fails` in it crash."""
    done: dict[str, int] = {}
    made: list[Control] = []
    while True:
        (matrix,) = matrices_of(cells, Sweeps())
        control = next_control((matrix,), done)
        if control is None or len(made) == most:
            return made, matrix
        made.append(control)
        done[control.key] = done.get(control.key, 0) + 1
        at = next(place for place, one in enumerate(cells) if one.scenario == control.scenario)
        bad = fails in control.scenario
        if control.repeats:
            kind, key = (Kind.CRASH, KEY) if bad else (Kind.PASSED, "")
            attempt = Attempt(kind, key, "", "log", 1.0)
            event = Controlled("m", control.scenario, "l", len(made), KEY, "r", values=control.values, attempt=attempt)
            cells[at] = replace(cells[at], controls=(*cells[at].controls, event))
        else:
            cells[at] = replace(cells[at], outcome=CRASHED if bad else PASSED)


def test_they_repeat_the_failure_and_then_separate_rivals() -> None:
    made, matrix = loop(list(CELLS), "guarded")
    (one,) = matrix.summaries()
    assert (one.state, [literal.values for term in one.terms for literal in term]) == ("established", [("guarded",)])
    assert [control.reason for control in made[:2]] == ["repeats the failure"] * 2
    assert made[2].reason.startswith("separates ")
    assert len(made) <= 6


def test_of_no_failure_there_is_none() -> None:
    assert next_control(tuple(matrices_of([cell("tcp", "send", PASSED), cell("shm", "send")])), {}) is None


def test_a_repeat_that_cannot_be_run_is_not_asked_for_again() -> None:
    refused = Attempt(Kind.SKIPPED, "", "no host", "", 0.0)
    cells = [
        replace(one, controls=(Controlled("m", one.scenario, one.label, 1, KEY, "r", attempt=refused),))
        for one in (cell("tcp", "guarded", CRASHED), cell("shm", "guarded", CRASHED), cell("rc", "guarded", CRASHED))
    ]
    assert next_control(tuple(matrices_of(cells)), {}) is None


def test_the_key_with_the_fewest_runs_comes_first() -> None:
    other = replace(CRASHED, signature=Signature(Kind.CRASH, "other@lib", "line", 1))
    cells = [*CELLS[:2], cell("rc", "guarded", other), *CELLS[2:4], CELLS[5]]
    matrices = tuple(matrices_of(cells))
    keys = [one.found.key for one in matrices[0].conditions]
    assert [one.state for one in matrices[0].conditions] == [State.OPEN, State.OPEN]
    for number, key in enumerate(keys):
        control = next_control(matrices, {one: 1 for place, one in enumerate(keys) if place != number})
        assert control
        assert control.key == key


def test_single_sizes_of_a_sweep() -> None:
    """A sweep passed 1K and 2K, and failed at 4K: nothing is known of 8K."""
    measured = tuple(Measurement("latency", 1.0, "us", point, 2) for point in SWEEP)
    cells = [
        *(
            cell(transport, "guarded", replace(CRASHED, measurements=measured[:2]))
            for transport in ("tcp", "shm", "rc")
        ),
        *(cell(transport, "send", replace(PASSED, measurements=measured)) for transport in ("tcp", "shm", "rc")),
    ]
    made, matrix = loop(cells, "guarded")
    (one,) = matrix.summaries()
    assert one.state == "established"
    assert "8K" in [control.values["size"] for control in made if control.values]
    assert any(literal.axis == "size" and literal.values == ("4K",) for term in one.terms for literal in term)


def test_a_flaky_failure_has_a_rate() -> None:
    cells = [
        *(cell(transport, "guarded", CRASHED) for transport in ("tcp", "shm", "rc")),
        *(cell(transport, "send", PASSED) for transport in ("tcp", "shm", "rc")),
    ]
    passed = Attempt(Kind.PASSED, "", "", "log", 1.0)
    cells[0] = replace(cells[0], controls=(Controlled("m", cells[0].scenario, "l", 1, KEY, "r", attempt=passed),))
    (matrix,) = matrices_of(cells)
    (one,) = matrix.summaries()
    assert state_text(one) == "flaky (3 of 4 runs fail, 30 to 95 %) after 1 further run"


class Settings(CellJobs):
    """Transport tcp has the setting `tls`. A derived cell has two ranks, others have four."""

    def facts(self, cell: CellRecord, attempt: str = "") -> Mapping[str, str]:
        own = {"tls": "tcp"} if cell.axes["transport"] == "tcp" and attempt != "control-1" else {}
        return {"family": "ucx", "ranks": "2" if attempt == "control-2" else "4", **own}


WITHOUT = {"transport": "tcp without tls"}
FEWER = {"workload": "guarded with 2 ranks"}
FAILS_WITH_TCP = [
    replace(one, outcome=CRASHED if one.axes["transport"] == "tcp" else PASSED)
    for one in (cell(transport, workload) for transport in ("tcp", "shm", "rc") for workload in ("guarded", "send"))
]


def with_control(number: int, values: Mapping[str, str], kind: Kind, key: str = "") -> MatrixRuns:
    """The runs of a matrix whose first cell has a derived one."""
    event = Controlled(
        "m", "tcp-guarded", "l", number, KEY, "r", values=values, attempt=Attempt(kind, key, "", "", 1.0)
    )
    first = replace(FAILS_WITH_TCP[0], controls=(event,))
    (matrix,) = matrices_of([first, *FAILS_WITH_TCP[1:]], Settings())
    return matrix


def where_of(matrix: MatrixRuns) -> str:
    return where(list(matrix.summaries())[-1])


def test_aliases_are_doubts() -> None:
    (matrix,) = matrices_of(FAILS_WITH_TCP, Settings())
    assert where_of(matrix) == "transport=tcp (i.e. tls=tcp)"
    asked: list[tuple[str, str, Doubts]] = []

    def derive(*args: Any) -> list[DerivedCell]:
        asked.append(args)
        return [DerivedCell(WITHOUT, Variant(dropped=frozenset({"tls"})), "without tls")]

    control = next_derived((matrix,), {}, derive)
    assert asked == [("m", "tcp-guarded", Doubts([Alias("transport", "tls")], ranks=True))]
    assert control
    assert (control.scenario, control.repeats, control.values) == ("tcp-guarded", True, WITHOUT)
    assert (control.reason, control.variant.dropped) == ("without tls", frozenset({"tls"}))
    assert next_derived((matrix,), {}, lambda *_: []) is None


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (Kind.PASSED, "", "transport=tcp (i.e. tls=tcp)"),
        (Kind.CRASH, KEY, "transport=tcp"),
        (Kind.CRASH, "other", "transport=tcp (i.e. tls=tcp)"),
        (Kind.UNKNOWN, "", "transport=tcp (i.e. tls=tcp)"),
    ],
)
def test_a_setting_less_shows_whether_it_is_the_value_or_the_setting(kind: Kind, key: str, text: str) -> None:
    matrix = with_control(1, WITHOUT, kind, key)
    found = [one for one in matrix.summaries() if one.key == KEY]
    assert [where(one) for one in found] == [text]
    shown = [one.shown for one in found[0].required if "tcp without tls" in one.values]
    effects = dict(found[0].no_effect)
    assert ("transport" in effects) is (key == KEY)
    assert shown == ([("passes",)] if kind is Kind.PASSED else [(key,)] if key == "other" else [])


def test_a_derived_cell_that_shows_nothing_leaves_no_gap() -> None:
    """An end of another kind says nothing about a failure, and no other cell has that value."""
    before, *others = (with_control(1, WITHOUT, kind, key).conditions[0] for kind, key in ENDS)
    assert all(one.state is before.state for one in others)


ENDS = ((Kind.PASSED, ""), (Kind.CRASH, "other"), (Kind.UNKNOWN, ""))


def test_fewer_ranks_become_a_fact() -> None:
    matrix = with_control(2, FEWER, Kind.PASSED)
    assert where_of(matrix) == "transport=tcp (i.e. tls=tcp) and ranks=4"
    matrix = with_control(2, FEWER, Kind.CRASH, KEY)
    assert where_of(matrix).startswith("transport=tcp")
    assert "ranks" not in where_of(matrix)


def test_a_flaky_failure_has_no_derived_cells() -> None:
    cells = [replace(FAILS_WITH_TCP[0], controls=(PASSED_ONCE,)), *FAILS_WITH_TCP[1:]]
    (matrix,) = matrices_of(cells, Settings())
    assert next_derived((matrix,), {}, lambda *_: [DerivedCell(WITHOUT, Variant(), "without tls")]) is None


PASSED_ONCE = Controlled("m", "tcp-guarded", "l", 1, KEY, "r", attempt=Attempt(Kind.PASSED, "", "", "log", 1.0))
