"""Failures that the values of cells do not explain: those of one host, and those from some time on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_hetgpu.analysis.boundary.jobs import CellJobs
from pytest_hetgpu.analysis.boundary.of_run import matrices_of
from pytest_hetgpu.analysis.boundary.words import where
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.reporting.boundary_lines import boundary_lines
from pytest_hetgpu.store.cells import CellRecord

HOSTS = ("gpu5", "gpu6", "gpu7")
PASSED = Outcome(Kind.PASSED, Verdict.OK)
CRASHED = Outcome(Kind.CRASH, Verdict.NEW, signature=Signature(Kind.CRASH, "SIGSEGV@lib", "line", 1))


def cells(fails: Callable[[CellRecord, str, float], bool]) -> tuple[list[CellRecord], dict[str, str]]:
    """Cells that a scheduler spread over three hosts, one a minute."""
    chance = random.Random(3)
    found, places = [], {}
    rows = list(itertools.product(("ob1", "ucx", "ofi"), ("send", "reduce", "gather"), ("1K", "2K", "4K")))
    chance.shuffle(rows)
    for number, row in enumerate(rows):
        label = "-".join(row)
        started = 1_795_660_800.0 + 60 * number
        cell = CellRecord(
            "m", label, label, dict(zip(("transport", "workload", "size"), row, strict=True)), started=started
        )
        places[label] = chance.choice(HOSTS)
        bad = fails(cell, places[label], started)
        found.append(CellRecord("m", label, label, cell.axes, started=started, outcome=CRASHED if bad else PASSED))
    return found, places


class Places(CellJobs):
    def __init__(self, places: dict[str, str]) -> None:
        self.places = places

    def hosts(self, cell: CellRecord) -> Sequence[str]:
        return (self.places[cell.scenario], "head")


def text(some: Sequence[CellRecord], places: dict[str, str]) -> str:
    (matrix,) = matrices_of(some, Places(places))
    (one,) = matrix.summaries()
    return where(one)


def test_one_host() -> None:
    assert text(*cells(lambda _, host, __: host == "gpu7")) == "on gpu7"


def test_from_some_time_on() -> None:
    found = text(*cells(lambda _, __, started: started >= 1_795_660_800.0 + 60 * 15))
    assert found == "from 2026-11-26 02:55:00 UTC on"


def test_the_start_of_a_cell_may_be_lost() -> None:
    some, places = cells(lambda _, __, started: started >= 1_795_660_800.0 + 60 * 15)
    some[3] = replace(some[3], started=None)
    (matrix,) = matrices_of(some, Places(places))
    (one,) = matrix.summaries()
    lines = dict(boundary_lines(one))
    assert lines["where"] == "from 2026-11-26 02:55:00 UTC on"
    assert lines["required"] == "start time: the 15 others pass"


def test_an_axis_may_be_named_time() -> None:
    some, places = cells(lambda cell, _, __: cell.axes["size"] == "2K")
    some = [replace(cell, axes={**cell.axes, "time": cell.axes["size"]}) for cell in some]
    assert text(some, places) == "size=2K (i.e. time=2K)"


def test_a_failure_that_values_explain_is_not_of_a_host() -> None:
    assert text(*cells(lambda cell, _, __: cell.axes["transport"] == "ucx")) == "transport=ucx"


def test_jobs_are_read_only_if_values_do_not_explain_it() -> None:
    some, _ = cells(lambda cell, _, __: cell.axes["transport"] == "ucx")

    class Never(CellJobs):
        def hosts(self, cell: CellRecord) -> Sequence[str]:
            raise AssertionError(cell)

    (matrix,) = matrices_of(some, Never())
    assert len(list(matrix.summaries())) == 1
