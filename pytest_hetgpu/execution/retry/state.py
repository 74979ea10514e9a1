"""The attempts at one cell: counted, in the journal, and in folders of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pytest_hetgpu.execution.budget import Budget
from pytest_hetgpu.execution.options import DEFAULTS, RunOptions
from pytest_hetgpu.execution.retry.engine_restart import EngineRestarts
from pytest_hetgpu.execution.retry.policy import attempt_of, is_service_loss, lost_its_engine, may_be_retried
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import Attempt, Outcome, RunResult
from pytest_hetgpu.store.folder import ATTEMPT, RunFolder, read_result
from pytest_hetgpu.store.journal import Journal


class RetryState:
    """The attempts at one cell so far. The files of the last one are in the cell's own folder."""

    def __init__(
        self, folder: RunFolder, journal: Journal, engines: EngineRestarts, options: RunOptions = DEFAULTS
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._engines = engines
        self._options = options
        self._begun = False
        self._failed: list[Attempt] = []
        self._note = ""

    @property
    def has_failed(self) -> bool:
        """Whether an attempt has failed and another one follows."""
        return bool(self._failed)

    @property
    def _budget(self) -> Budget:
        return self._options.budget

    def begin(self, job: Job) -> None:
        """Remove the attempts of an earlier session from the cell's folder, the first time that this is called."""
        if not self._begun:
            self._begun = True
            self._folder.remove_attempts(job.label)

    def should_retry(self, outcome: Outcome, job: Job) -> bool:
        """Return whether another attempt follows this outcome.

        If the container engine was lost, the cell gets one more attempt whatever the options are, once the engine is
        back.
        """
        if self._budget.spent:
            return False
        absences = sum(is_service_loss(one.key) for one in self._failed)
        if lost_its_engine(outcome) and not absences:
            away = self._engines.why_absent(job)
            self._note = f"not run once more: {away}" if away else ""
            return not away
        retries = self._options.retries
        return len(self._failed) - absences < retries.most and may_be_retried(outcome, retries.kinds)

    def save(self, job: Job, outcome: Outcome) -> None:
        """Keep an attempt that another one follows: in the journal first, then its files in their own folder."""
        number = len(self._failed) + 1
        folder = self._folder.for_attempt(f"{ATTEMPT}{number}")
        attempt = attempt_of(outcome, str(folder.log(job.label).relative_to(self._folder.path)))
        self._journal.attempted(job, number, attempt)
        self._folder.move_attempt(job.label, folder)
        self._failed.append(attempt)

    def finish(self, outcome: Outcome) -> Outcome:
        """Return the last outcome with the attempts before it, and with the reason if the engine stayed away."""
        notes = (*outcome.notes, self._note) if self._note else outcome.notes
        return replace(outcome, attempts=tuple(self._failed), notes=notes)


def saved_attempts(folder: RunFolder, label: str) -> Iterator[tuple[RunFolder, RunResult]]:
    """Yield the saved attempts at a cell in their order, each with its folder."""
    number = 1
    while (attempt := folder.for_attempt(f"{ATTEMPT}{number}")).job(label).exists():
        result = read_result(attempt.job(label))
        if result is not None:
            yield attempt, result
        number += 1
