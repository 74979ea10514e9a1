"""Judges stored logs again: verdicts come from what is on disk, so a better reading needs no second run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.judge import judge_output
from pytest_hetgpu.reporting.folder import RunFolder, read_job, read_result
from pytest_hetgpu.reporting.journal import Journal, read, read_run
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.wording import rerun

WRITER = "rejudged"


def rejudge(run: Path) -> Iterator[str]:
    """Journals a new outcome for every finished cell of a run, rebuilds its reports; yields a line a changed verdict.

    Raises UsageError for a folder that is no run's.
    """
    folder = RunFolder(run)
    if not (run / "journal").is_dir():
        raise UsageError(f"{run}: not a run's folder (it has no journal)")
    changed = 0
    with closing(Journal(run, WRITER)) as journal:
        for record in read(run):
            path = folder.job(record.label)
            result = read_result(path) if path.exists() else None
            if result is None:
                continue
            job = read_job(path)
            # The run may have been moved since: its log lies beside its job.
            outcome = judge_output(job, replace(result, output=str(folder.log(record.label))))
            outcome = replace(outcome, concerns=record.outcome.concerns)
            journal.judged(job, outcome)
            before, after = record.outcome, outcome
            if (before.kind, before.verdict) != (after.kind, after.verdict):
                changed += 1
                was, now = (f"{o.kind.value} ({o.verdict.value})" for o in (before, after))
                yield f"{record.label}: was {was}, is {now}: {after.why}"
    files = {matrix.name: matrix.file for session in read_run(run).sessions for matrix in session.matrices}
    build(run, lambda matrix, label: shlex.join(rerun(files.get(matrix, f"{matrix}.yaml"), label)))
    yield f"{changed} verdicts changed; reports rebuilt in {run}"
