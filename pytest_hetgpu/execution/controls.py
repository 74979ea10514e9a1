"""Further runs after all cells, which show under which condition the failures of a run occur."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pytest_hetgpu.analysis.boundary.controls import Control, next_control, next_derived
from pytest_hetgpu.analysis.boundary.jobs import CONTROL, StoredJobs
from pytest_hetgpu.analysis.boundary.of_run import matrices_of
from pytest_hetgpu.errors import MatrixError, NotHere, ProvisionError
from pytest_hetgpu.execution.further_run import further_run, run_cell
from pytest_hetgpu.execution.runner import CellRunner
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.model.outcome import Attempt, Outcome
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.derived import DerivedCell, Doubts, derived_cells
from pytest_hetgpu.store.cells import CellRecord, read_run
from pytest_hetgpu.store.events import Controlled

_PER_KEY = 10
_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest number of further runs, and the seconds for all of them; None: as many as the failures' keys need."""

    most: int | None = 0
    seconds: float = 0.0


def auto(elapsed: float) -> Limit:
    """Return the limit of `auto`: ten runs for each key, and a quarter of the time that the run took so far."""
    return Limit(None, _SHARE * elapsed)


class Controls:
    """The further runs of one run, one after another. `tell` is called with the label of each and a line about it."""

    def __init__(self, runner: CellRunner, limit: Limit, tell: Callable[[str, str], object]) -> None:
        self._runner = runner
        self._run = runner.context
        self._limit = limit
        self._tell = tell
        self._deadline = time.monotonic() + limit.seconds
        suite = self._run.suite
        self._scenarios = {(one.matrix, one.id): one for one in suite.scenarios if not one.excluded}
        self._cells = {identity: _not_run(one) for identity, one in self._scenarios.items()}
        self._cells |= {(cell.matrix, cell.scenario): cell for cell in read_run(self._run.folder.path).cells}
        self._done = Counter(control.key for cell in self._cells.values() for control in cell.controls)

    def run(self) -> int:
        """Run further cells, or cells again, while one shows more. Return their number."""
        before = self._done.total()
        while (control := self._next()) is not None:
            identity = control.matrix, control.scenario
            event = self._event(control)
            if control.repeats:
                attempt = self._repeat(control, event.number)
                if attempt is None:
                    break
                event = replace(event, attempt=attempt)
            self._run.journal.controlled(event)
            cell = replace(self._cells[identity], controls=(*self._cells[identity].controls, event))
            if not control.repeats:
                cell = replace(cell, outcome=run_cell(self._runner, self._scenarios[identity]))
            self._cells[identity] = cell
            self._done[control.key] += 1
            self._tell(cell.label, _line(event, cell))
        return self._done.total() - before

    def _next(self) -> Control | None:
        limit, budget = self._limit, self._run.options.budget
        if budget.spent or (limit.most is None and time.monotonic() > self._deadline):
            return None
        cells = list(self._cells.values())
        matrices = tuple(matrices_of(cells, StoredJobs([(self._run.folder, cells)])))
        most = _PER_KEY * sum(len(one.conditions) for one in matrices) if limit.most is None else limit.most
        if self._done.total() >= most:
            return None
        return next_control(matrices, self._done) or next_derived(matrices, self._done, self._derived)

    def _derived(self, matrix: str, cell: str, doubts: Doubts) -> Iterator[DerivedCell]:
        """Yield the cells that may be derived from a cell and were not run yet, for any failure."""
        scenario = self._scenarios.get((matrix, cell))
        if scenario is None:
            return
        suite = self._run.suite
        cells = {one.values for one in suite.scenarios if one.matrix == matrix}
        tried = [one.values.items() for one in self._cells[matrix, cell].controls]
        for one in derived_cells(suite.matrices[matrix], cells, scenario, suite.job(scenario), doubts):
            if not any(one.values.items() <= before for before in tried):
                yield one

    def _event(self, control: Control) -> Controlled:
        scenario = self._scenarios[control.matrix, control.scenario]
        axes = dict(zip(scenario.axes, scenario.values, strict=True))
        number = self._done.total() + 1
        return Controlled(
            control.matrix, scenario.id, scenario.label, number, control.key, control.reason, axes, control.values
        )

    def _repeat(self, control: Control, number: int) -> Attempt | None:
        scenario = self._scenarios[control.matrix, control.scenario]
        try:
            ran = further_run(self._run, scenario, control.variant, f"{CONTROL}-{number}")
        except (NotHere, ProvisionError, MatrixError) as error:
            return Attempt(Kind.SKIPPED, "", str(error), "", 0.0)
        return ran.attempt if ran else None


def _not_run(scenario: Scenario) -> CellRecord:
    axes = dict(zip(scenario.axes, scenario.values, strict=True))
    return CellRecord(scenario.matrix, scenario.id, scenario.label, axes)


def _line(event: Controlled, cell: CellRecord) -> str:
    """Return `control 3: two-ob1-allreduce (8K): passed (separates a from b, for KEY)`."""
    one = event.attempt
    ended = f"{one.kind.value} {one.key}" if one else _ended(cell.outcome)
    point = f" ({', '.join(event.values.values())})" if event.values else ""
    return f"control {event.number}: {event.label}{point}: {ended.strip()} ({event.reason}, for {event.key})"


def _ended(outcome: Outcome) -> str:
    return f"{outcome.kind.value} {outcome.signature.key if outcome.signature else ''}"
