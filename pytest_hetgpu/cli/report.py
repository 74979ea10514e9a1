"""Judges stored logs again: verdicts come from what is on disk, so a better reading needs no second run."""

from __future__ import annotations

import itertools
import math
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from pytest_hetgpu.analysis.judge import SCENARIO, judge_output
from pytest_hetgpu.config.inventory import inventory
from pytest_hetgpu.config.inventory.sources import spec_of
from pytest_hetgpu.config.known_failures.entries import Knowledge
from pytest_hetgpu.config.known_failures.load import knowledge
from pytest_hetgpu.errors import HetgpuError, UsageError
from pytest_hetgpu.execution.remeasure import launches
from pytest_hetgpu.execution.retry.policy import settled
from pytest_hetgpu.execution.retry.state import saved_attempts
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.planning.suite import Suite
from pytest_hetgpu.reporting.messages import rerun
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.store import writer_lock
from pytest_hetgpu.store.cells import CellRecord, lost_logs, read_run
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.events import Run
from pytest_hetgpu.store.files import refuse_links
from pytest_hetgpu.store.folder import RunFolder, read_job, read_result
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.redaction import anonymity
from pytest_hetgpu.store.redaction.redact import learn

WRITER = "rejudged"
_MOST = 10
_KNOWLEDGE = "--hetgpu-knowledge"
_INVENTORY = "--hetgpu-inventory"
_OPTIONS = (_INVENTORY, _KNOWLEDGE, "--hetgpu-timeout", "--hetgpu-preflight")


def rejudge(
    run: Path, added: Sequence[Path] = (), history: Path | None = None, *, anonymous: bool = False
) -> Iterator[str]:
    """Journals a new outcome for every finished cell of a run, rebuilds its reports; yields a line a changed verdict.

    What is known of failures is what the run knew, besides the shipped entries: its own files, or `added` instead of
    them. `anonymous`: reports have stand-ins for names from now on. Afterwards it puts the run into a `history`. Raises
    UsageError, before any verdict is touched, for a folder that is no run's and for a file that is gone; HistoryError
    for a history that cannot be written.
    """
    folder = RunFolder(run)
    if not (run / "journal").is_dir():
        raise UsageError(f"{run}: not a run's folder (it has no journal)")
    refuse_links(run)
    record = read_run(run)
    _learn(record.sessions if folder.unpublished() else ())
    known = _knowledge(run, record.sessions, added)
    changed = 0
    # What is said here is said after all that was there; of a run that goes on, before what is still to come.
    part = record.part + (not writer_lock.alive(run / "journal" / "main.jsonl"))
    with closing(Journal(run, WRITER, part)) as journal:
        for cell in record.cells:
            folder.redact_again(cell.label)
            try:
                after = _judged(cell, folder, known)
            except RecordError as error:
                yield f"{cell.label}: stays as it was judged: {error}"
                continue
            if after is None:
                continue
            journal.judged(read_job(folder.job(cell.label)), after)
            before = cell.outcome
            if (before.kind, before.verdict) != (after.kind, after.verdict):
                changed += 1
                was, now = (f"{o.kind.value} ({o.verdict.value})" for o in (before, after))
                yield f"{cell.label}: was {was}, is {now}: {after.why}"
    if anonymous:
        anonymity.keep(run)
    commands = {(cell.matrix, cell.label): _again(cell, record.sessions) for cell in record.cells}
    lost = lost_logs(record, folder)
    if lost:
        yield f"{len(lost)} logs are gone, their cells stay as they were judged: {', '.join(lost[:_MOST])}"
    build(run, lambda matrix, label: commands[matrix, label])
    yield f"{changed} verdicts changed; reports rebuilt in {run}"
    if history:
        from pytest_hetgpu.store.history import put
        from pytest_hetgpu.store.run_summary import past

        yield put(history, past(read_run(run), run)) or f"put into {history}"


def _learn(sessions: Sequence[Run]) -> None:
    """Has what is secret in this environment, and in the matrices and inventories of these sessions, redacted.

    What is not there any more is left out; nothing is asked of this machine or of its standard input.
    """
    learn(os.environ)
    files = [Path(session.folder, matrix.file) for session in sessions for matrix in session.matrices]
    for file in dict.fromkeys(files):
        with suppress(HetgpuError, OSError):
            suite = Suite.load([file], file.parent, timeout=math.inf, environ=os.environ)
            learn({}, *suite.settings())
    given = [(session.folder, text) for session in sessions for text in _values(_options(session), _INVENTORY)]
    for folder, text in dict.fromkeys(given):
        with suppress(HetgpuError, OSError):
            spec = spec_of(text)
            place = Path(folder, os.path.expanduser(spec.path or "" if spec else text))  # noqa: PTH111 - as elsewhere
            if spec is None or spec.is_file:
                learn({}, *inventory.read(f"{spec.kind}:{place}" if spec else place, files_only=True).settings())


def _judged(cell: CellRecord, folder: RunFolder, known: Knowledge | None) -> Outcome | None:
    """What a cell's log shows now; None where there is none (any more), or its test failed for a reason of its own.

    Raises RecordError where what was started is not known: its file is damaged, or of a newer version.
    """
    path = folder.job(cell.label)
    result = read_result(path) if path.exists() else None
    if (
        result is None
        or not folder.log(cell.label).exists()
        or any(one.judge == SCENARIO for one in cell.outcome.findings)
    ):
        return None
    # The run may have been moved since: its log lies beside its job.
    further = [again for _, again in launches(folder, cell.label)]
    judged = [_again_judged(one, cell.label, before, known) for one, before in saved_attempts(folder, cell.label)]
    judged.append(_again_judged(folder, cell.label, result, known, further))
    return replace(settled(judged), concerns=cell.outcome.concerns, debug=cell.outcome.debug)


def _again_judged(
    folder: RunFolder, label: str, result: RunResult, known: Knowledge | None, further: Sequence[RunResult] = ()
) -> tuple[str, Outcome]:
    """What an attempt's log shows now, with the path of that log from the run's folder."""
    log = folder.log(label)
    outcome = judge_output(read_job(folder.job(label)), replace(result, output=str(log)), known, further)
    return str(log.relative_to(folder.path)), outcome


def _knowledge(run: Path, sessions: Sequence[Run], added: Sequence[Path]) -> Knowledge | None:
    """What the run knew of failures; None for the shipped entries alone. Without its files no verdict is touched."""
    files = added or [
        Path(session.folder, file) for session in sessions for file in _values(_options(session), _KNOWLEDGE)
    ]
    gone = next((file for file in files if not (added or file.is_file())), None)
    if gone:
        raise UsageError(
            f"{run}: its verdicts rest on the known failures in {gone}, which is no file now; no verdict was touched. "
            "Say where they are with --knowledge FILE (a file with [] stands for none)"
        )
    return knowledge(tuple(dict.fromkeys(files))) if files else None


def _again(cell: CellRecord, sessions: Sequence[Run]) -> str:
    """The command that runs a cell once more, with the options of the last session that had its matrix."""
    had = ((one.file, _options(session)) for session in sessions for one in session.matrices if one.name == cell.matrix)
    *_, (file, options) = ((f"{cell.matrix}.yaml", ()), *had)
    return shlex.join(rerun(file, cell.scenario, options))


def _options(session: Run) -> tuple[str, ...]:
    """What a session's cells need again; of a journal that does not tell, what its command line has of it."""
    given = ((option, value) for option in _OPTIONS for value in _values(session.argv, option))
    return session.options or tuple(itertools.chain.from_iterable(given))


def _values(words: Sequence[str], option: str) -> Iterator[str]:
    """The values that an option was given, as two words or as one."""
    for word, after in itertools.pairwise((*words, "")):
        if word == option:
            yield after
        elif word.startswith(f"{option}="):
            yield word.removeprefix(f"{option}=")
