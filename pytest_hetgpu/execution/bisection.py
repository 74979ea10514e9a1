"""Further runs that find where along an axis, or from which version of an MPI on, the outcome changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pytest_hetgpu.analysis.boundary.bisect import bisected, changes_text, next_value
from pytest_hetgpu.analysis.boundary.trials import end_key
from pytest_hetgpu.errors import MatrixError, NotHere, ProvisionError
from pytest_hetgpu.execution.failing_cells import FailingCell, OutOfTime, failing_cells
from pytest_hetgpu.execution.further_run import further_run, last_number, run_cell
from pytest_hetgpu.execution.runner import CellRunner
from pytest_hetgpu.model.job import Scenario, Stack
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.planning.along_axis import along
from pytest_hetgpu.planning.variant import Variant
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import Bisected

STACK = "stack"
_VERSION = "version"
Tell = Callable[[str, str], object]


class AxisBisection:
    """The searches along one axis: cells that differ in it only are run at its ends, and then in between."""

    def __init__(self, runner: CellRunner, axis: str, tell: Tell) -> None:
        self._runner = runner
        self._run = runner.context
        self._axis = axis
        self._tell = tell
        self._record = read_run(self._run.folder.path)

    def run(self) -> None:
        """Search in each group of cells of which some were run."""
        done = {(one.matrix, tuple(sorted(one.values.items()))) for one in self._record.bisected}
        outcomes = {(cell.matrix, cell.scenario): cell.outcome for cell in self._record.cells if cell.result}
        for group in along(self._run.suite.scenarios, self._axis):
            matrix = group.cells[0].matrix
            ran = {place: cell for place, cell in enumerate(group.cells) if (matrix, cell.id) in outcomes}
            if not ran or (matrix, tuple(sorted(group.others.items()))) in done:
                continue
            known = {place: outcomes[matrix, cell.id] for place, cell in ran.items()}
            if not self._search(group.cells, known):
                return
            ends = {place: end for place, outcome in sorted(known.items()) if (end := end_key(outcome)) is not None}
            values = [cell.value(self._axis) for cell in group.cells]
            event = Bisected(matrix, self._axis, group.others, changes_text(values, ends))
            self._run.journal.tried(event)
            self._tell(group.cells[0].label, event.line)

    def _search(self, cells: Sequence[Scenario], known: dict[int, Outcome]) -> bool:
        """Run cells until every change is known; return whether it came to its end."""
        while True:
            ends = {place: end for place, outcome in known.items() if (end := end_key(outcome)) is not None}
            place = next_value(len(cells), ends, known.keys() - ends.keys())
            if place is None:
                return True
            if self._run.options.budget.spent:
                return False
            known[place] = run_cell(self._runner, cells[place])


class StackBisection:
    """The searches over the versions of an MPI that lie beside a stack, for one cell of each failure."""

    def __init__(self, runner: CellRunner, tell: Tell) -> None:
        self._run = runner.context
        self._tell = tell
        self._record = read_run(self._run.folder.path)
        self._number = last_number(self._run, _VERSION)

    def run(self) -> None:
        """Search for each failure of a cell on one stack of this machine that has other versions."""
        done = {(one.matrix, one.scenario) for one in self._record.bisected}
        for cell in failing_cells(self._run, self._record):
            job = self._run.suite.job(cell.scenario)
            names = {node.stack.name for node in job.nodes if node.stack}
            if job.is_multi_host or len(names) != 1 or (job.matrix, job.scenario) in done:
                continue
            versions = self._run.suite.stack_versions(names.pop())
            if len(versions) < 2:
                continue
            try:
                known = bisected(len(versions), partial(self._end, cell, versions))
            except OutOfTime:
                return
            text = changes_text([one.version for one in versions], known)
            event = Bisected(job.matrix, STACK, {STACK: versions[0].name}, text, job.scenario)
            self._run.journal.tried(event)
            self._tell(job.label, event.line)

    def _end(self, cell: FailingCell, versions: Sequence[Stack], place: int) -> str | None:
        if self._run.options.budget.spent:
            raise OutOfTime
        self._number += 1
        try:
            ran = further_run(self._run, cell.scenario, Variant(stack=versions[place]), f"{_VERSION}-{self._number}")
        except (NotHere, ProvisionError, MatrixError):
            return None
        return end_key(ran.outcome) if ran else None
