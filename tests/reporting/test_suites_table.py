"""Tests of users' suites, compared between cells."""

from __future__ import annotations

from dataclasses import replace

from pytest_hetgpu.model.program_output import SuiteResult
from pytest_hetgpu.reporting import suites_table
from pytest_hetgpu.store.cells import RunRecord
from tests.reporting.report_samples import PASSED, cell

RECORD = RunRecord(
    (
        cell("two-shm-mpi4py", replace(PASSED, suite=SuiteResult(9, (), 2))),
        cell("two-ucx-mpi4py", replace(PASSED, suite=SuiteResult(9, ("io|x", "rma")))),
        cell("two-ofi-mpi4py", replace(PASSED, suite=SuiteResult(9, ("rma",)))),
        cell("two-tcp-mpi4py", replace(PASSED, suite=SuiteResult(9, ("rma",), whole=False))),
        cell("two-tcp-petsc", replace(PASSED, suite=SuiteResult(5))),
        cell("two-tcp-allreduce", PASSED),
    )
)


def test_a_test_has_the_cells_in_which_it_fails_and_those_in_which_it_does_not() -> None:
    heading, counts, failed = suites_table.paragraphs(RECORD, lambda text: text.replace("|", "\\|"))
    assert heading == "## Tests"
    assert counts.splitlines()[2:] == [
        "| two-shm-mpi4py | 9 | 0 | 2 |",
        "| two-ucx-mpi4py | 9 | 2 | 0 |",
        "| two-ofi-mpi4py | 9 | 1 | 0 |",
        "| two-tcp-mpi4py | 9 | 1 | 0 |",
        "| two-tcp-petsc | 5 | 0 | 0 |",
    ]
    # What fails in one cell only comes first. A suite that did not end proves nothing,
    # nor does the suite of another program.
    assert failed.splitlines()[2:] == [
        "| io\\|x | two-ucx-mpi4py | two-shm-mpi4py, two-ofi-mpi4py |",
        "| rma | two-ucx-mpi4py, two-ofi-mpi4py, two-tcp-mpi4py | two-shm-mpi4py |",
    ]


def test_without_suites_there_is_no_section() -> None:
    assert list(suites_table.paragraphs(RunRecord((cell("two-tcp-allreduce", PASSED),)), str)) == []
