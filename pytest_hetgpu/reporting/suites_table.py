"""Tests of users' own suites: which test fails in which cells, and in which it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_hetgpu.model.program_output import SuiteResult
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.text import one_line

_MOST_TESTS = 200
_MOST_CELLS = 20


class FailedTest(NamedTuple):
    """A test that failed in some cells; `passed` are the cells whose suite ran to its end without that failure."""

    name: str
    failed: tuple[str, ...]
    passed: tuple[str, ...]


def failed_tests(cells: Sequence[CellRecord]) -> tuple[FailedTest, ...]:
    """Return the failed tests of all suites, those that fail in the fewest cells first.

    Cells of one workload are compared. A suite that did not reach its end, or of which names were cut, does not prove
    that a test passed.
    """
    suites: dict[tuple[str, str], dict[str, SuiteResult]] = {}
    for cell in cells:
        if cell.outcome.suite:
            suites.setdefault((cell.matrix, cell.axes.get("workload", "")), {})[cell.label] = cell.outcome.suite
    found = [test for several in suites.values() for test in _of_workload(several)]
    return tuple(sorted(found, key=lambda one: len(one.failed)))[:_MOST_TESTS]


def _of_workload(suites: Mapping[str, SuiteResult]) -> Iterator[FailedTest]:
    failed: dict[str, dict[str, None]] = {}
    for label, suite in suites.items():
        for name in suite.failed:
            failed.setdefault(name, {})[label] = None
    whole = [label for label, suite in suites.items() if suite.whole and not suite.more]
    for name, labels in failed.items():
        yield FailedTest(name, tuple(labels), tuple(label for label in whole if label not in labels))


def paragraphs(record: RunRecord, escape: Callable[[str], str]) -> Iterator[str]:
    """Yield the results of all suites and their failed tests; nothing if no cell has a suite."""
    cells = [cell for cell in record.cells if cell.outcome.suite]
    if not cells:
        return
    yield "## Tests"
    rows = [_row(cell, escape) for cell in cells]
    yield "\n".join(["| cell | tests | failed | skipped |", "|---|---:|---:|---:|", *rows])
    failed = failed_tests(cells)
    if failed:
        head = ["| failed test | fails in | not in |", "|---|---|---|"]
        yield "\n".join(
            [
                *head,
                *(
                    f"| {escape(one.name)} | {_list(one.failed, escape)} | {_list(one.passed, escape)} |"
                    for one in failed
                ),
            ]
        )


def _row(cell: CellRecord, escape: Callable[[str], str]) -> str:
    suite = cell.outcome.suite
    assert suite
    return f"| {escape(cell.label)} | {suite.tests} | {len(suite.failed) + suite.more} | {suite.skipped} |"


def _list(labels: Sequence[str], escape: Callable[[str], str]) -> str:
    more = f" and {len(labels) - _MOST_CELLS} more" if len(labels) > _MOST_CELLS else ""
    return ", ".join(escape(label) for label in labels[:_MOST_CELLS]) + more


def tests_data(record: RunRecord) -> list[list[object]]:
    """Return the failed tests for the page: `[test, cells in which it fails, cells in which it does not]`."""
    return [
        [one_line(one.name), [one_line(label) for label in one.failed], [one_line(label) for label in one.passed]]
        for one in failed_tests(record.cells)
    ]
