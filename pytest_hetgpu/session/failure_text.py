"""Texts of failing tests, with the command that runs just this cell again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pytest_hetgpu.reporting import messages
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.folder import read_job
from pytest_hetgpu.store.text import display_path

if TYPE_CHECKING:
    from pytest_hetgpu.execution.context import RunContext
    from pytest_hetgpu.model.job import Job
    from pytest_hetgpu.model.outcome import Outcome
    from pytest_hetgpu.store.cells import CellRecord


def again(run: RunContext, matrix: str, label: str) -> str:
    """Return the command that runs just this cell once more."""
    return messages.rerun_command(run.suite, matrix, label, run.options.typed)


def describe(run: RunContext, job: Job, outcome: Outcome) -> str:
    """Return the text of a failing test."""
    log = display_path(run.folder.log(job.label))
    return messages.failure_text(job, outcome, log, again(run, job.matrix, job.label))


def kept(run: RunContext, cell: CellRecord) -> str:
    """Return the text of a failing test whose cell an earlier part of the run judged."""
    try:
        text = describe(run, read_job(run.folder.job(cell.label)), cell.outcome)
    except RecordError:
        text = f"{cell.outcome.kind.value} ({cell.outcome.verdict.value}): {cell.outcome.why}\n"
        text += f"  command: {shlex.join(cell.argv)}\n" if cell.argv else ""
        text += f"  again:   {again(run, cell.matrix, cell.label)}"
    return f"{text}\n  kept as an earlier part of this run judged it"
