"""Judges stored logs again: verdicts come from what is on disk, so a better reading needs no second run."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.judge import SCENARIO, judge_output
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
            of_its_test = record.outcome and any(one.judge == SCENARIO for one in record.outcome.findings)
            if result is None or of_its_test:
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
    sessions = read_run(run).sessions
    files = {matrix.name: matrix.file for session in sessions for matrix in session.matrices}
    where = next((found for session in sessions if (found := _inventory(session.argv))), "")
    build(run, lambda matrix, label: shlex.join(rerun(files.get(matrix, f"{matrix}.yaml"), label, where)))
    yield f"{changed} verdicts changed; reports rebuilt in {run}"


def _inventory(argv: Sequence[str]) -> str:
    """The inventory that a command line of pytest named."""
    option = "--hetgpu-inventory"
    joined = (word.removeprefix(f"{option}=") for word in argv if word.startswith(f"{option}="))
    apart = (after for word, after in itertools.pairwise(argv) if word == option)
    return next(itertools.chain(joined, apart), "")
