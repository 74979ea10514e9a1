"""The attempts at the cell that a process is at: counted, journalled, and kept apart on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pytest_hetgpu.execution.retry.budget import UNLIMITED, Budget
from pytest_hetgpu.execution.retry.engine_restart import Returning
from pytest_hetgpu.execution.retry.policy import Retries, attempt_of, is_service_loss, lost_its_engine, may_be_retried
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Attempt, Outcome, RunResult
from pytest_hetgpu.store.folder import ATTEMPT, RunFolder, read_result
from pytest_hetgpu.store.journal import Journal


class Trying:
    """Of one process, which is at one cell at a time. The last attempt lies in the cell's own folder."""

    def __init__(self, folder: RunFolder, journal: Journal) -> None:
        self.retries = Retries()
        self.budget: Budget = UNLIMITED
        self.returning = Returning(journal)
        self._note = ""
        self._folder = folder
        self._journal = journal
        self._cell: tuple[str, str] | None = None
        self._failed: list[Attempt] = []

    def begin(self, job: Job) -> None:
        """A cell's turn: what was left of attempts at it in an earlier session goes."""
        cell = (job.matrix, job.label)
        if cell != self._cell:
            self._cell, self._failed, self._note = cell, [], ""
            self._folder.remove_attempts(job.label)

    def tried(self, scenario: Scenario) -> bool:
        """Whether an attempt at this cell has failed, and this is about another one."""
        return self._cell == (scenario.matrix, scenario.label) and bool(self._failed)

    def again(self, outcome: Outcome, job: Job) -> bool:
        """Whether there is another attempt after this one.

        A cell under which the container engine went away has one more, whatever was asked for, once the engine is back.
        """
        if self.budget.spent:
            return False
        absences = sum(is_service_loss(one.key) for one in self._failed)
        if lost_its_engine(outcome) and not absences:
            away = self.returning.away(job, self.budget)
            self._note = f"not run once more: {away}" if away else ""
            return not away
        return len(self._failed) - absences < self.retries.most and may_be_retried(outcome, self.retries.kinds)

    def failed(self, job: Job, outcome: Outcome) -> None:
        """Keeps an attempt that another one follows: in the journal first, then its files in a folder of their own."""
        number = len(self._failed) + 1
        folder = self._folder.for_attempt(f"{ATTEMPT}{number}")
        kept = attempt_of(outcome, str(folder.log(job.label).relative_to(self._folder.path)))
        self._journal.attempted(job, number, kept)
        self._folder.move_attempt(job.label, folder)
        self._failed.append(kept)

    @property
    def before(self) -> tuple[Attempt, ...]:
        """The attempts that failed so far."""
        return tuple(self._failed)

    def told(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the attempts before it, and why there is no further one where that needs a word."""
        notes = (*outcome.notes, self._note) if self._note else outcome.notes
        return replace(outcome, attempts=self.before, notes=notes)

    def over(self) -> None:
        """The cell has its outcome: another session of this process may come to it again."""
        self._cell, self._failed, self._note = None, [], ""


def kept(folder: RunFolder, label: str) -> Iterator[tuple[RunFolder, RunResult]]:
    """The attempts at a cell that failed before its last one, as they lie on disk, in their order."""
    number = 1
    while (attempt := folder.for_attempt(f"{ATTEMPT}{number}")).job(label).exists():
        result = read_result(attempt.job(label))
        if result is not None:
            yield attempt, result
        number += 1
