"""Judges stored logs again. Verdicts come from the logs on disk, so an improved judge needs no second run."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_hetgpu.analysis.judge import SCENARIO, judge_output
from pytest_hetgpu.config.inventory.file import read as read_inventory
from pytest_hetgpu.config.inventory.sources import spec_of
from pytest_hetgpu.config.known_failures.entries import KnownFailures
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.config.matrix.reader import read as read_matrix
from pytest_hetgpu.config.signature_rules.load import signature_rules
from pytest_hetgpu.errors import HetgpuError, UsageError
from pytest_hetgpu.execution.remeasure import launches
from pytest_hetgpu.execution.retry.policy import settled
from pytest_hetgpu.execution.retry.state import saved_attempts
from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.planning.matrix_set import find_matrix, settings_of
from pytest_hetgpu.reporting.messages import rerun_argv
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.store import writer_lock
from pytest_hetgpu.store.cells import CellRecord, RunRecord, missing_logs, read_run
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.events import SessionStarted
from pytest_hetgpu.store.files import refuse_links
from pytest_hetgpu.store.folder import RunFolder, read_job, read_result
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.redaction import anonymity
from pytest_hetgpu.store.redaction.redact import register_secrets

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

WRITER = "rejudged"
_MOST = 10
_KNOWLEDGE, _SIGNATURES = "--hetgpu-knowledge", "--hetgpu-signatures"
_INVENTORY = "--hetgpu-inventory"
_OPTIONS = (_INVENTORY, _KNOWLEDGE, _SIGNATURES, "--hetgpu-timeout", "--hetgpu-preflight")


class _Basis(NamedTuple):
    """The basis of verdicts besides logs: known failures (None for the shipped ones), and rules of the user."""

    known: KnownFailures | None
    own: Sequence[MatchRule]


def rejudge(
    run: Path,
    added: Sequence[Path] = (),
    history: HistoryPlace | None = None,
    *,
    signatures: Sequence[Path] = (),
    anonymous: bool = False,
) -> Iterator[str]:
    """Journal a new outcome for every finished cell of a run and rebuild its reports. Yield a line per changed verdict.

    `added` and `signatures` replace the run's own files of known failures and of rules. `anonymous` switches the
    reports to pseudonyms from now on. At the end, the run is stored in `history`.

    Raises UsageError, before any verdict is touched, if the folder is no run's or a file is missing. Raises
    HistoryError if the history cannot be written.
    """
    folder = RunFolder(run)
    if not (run / "journal").is_dir():
        raise UsageError(f"{run}: not a run's folder (it has no journal)")
    refuse_links(run)
    record = read_run(run)
    _register_run_secrets(record.sessions if folder.unpublished_logs() else ())
    basis = _bases(run, record, added, signatures)
    changed = 0
    # These events follow all earlier ones. In a run that is still going, they precede all later ones.
    part = record.part + (not writer_lock.writer_alive(run / "journal" / "main.jsonl"))
    with closing(Journal(run, WRITER, part)) as journal:
        for cell in record.cells:
            folder.redact_again(cell.label)
            try:
                after = _rejudge_cell(cell, folder, basis(cell))
            except RecordError as error:
                yield f"{cell.label}: stays as it was judged: {error}"
                continue
            if after is None:
                continue
            journal.judged(read_job(folder.job(cell.label)), after)
            before = cell.outcome
            if (before.kind, before.verdict) != (after.kind, after.verdict):
                changed += 1
                yield _change(cell.label, before, after)
    if anonymous:
        anonymity.mark_anonymous(run)
    yield from rebuild(folder, record, history)
    yield f"{changed} verdicts changed; reports rebuilt in {run}"
    if history:
        from pytest_hetgpu.store.history import put
        from pytest_hetgpu.store.run_summary import summarise

        yield put(history, summarise(read_run(run), run)) or f"put into {history}"


def _change(label: str, before: Outcome, after: Outcome) -> str:
    was, now = (f"{o.kind.value} ({o.verdict.value})" for o in (before, after))
    return f"{label}: was {was}, is {now}: {after.why}"


def rebuild(folder: RunFolder, record: RunRecord, history: HistoryPlace | None = None) -> Iterator[str]:
    """Build the reports of a run from its journal, and the runs before it in `history`.

    Yield a line if logs are missing.
    """
    commands = {(cell.matrix, cell.label): _rerun_command(cell, record.sessions) for cell in record.cells}
    lost = missing_logs(record, folder)
    if lost:
        yield f"{len(lost)} logs are gone, their cells stay as they were judged: {', '.join(lost[:_MOST])}"
    build(folder.path, lambda matrix, label: commands[matrix, label], history=history)


def _register_run_secrets(sessions: Sequence[SessionStarted]) -> None:
    """Register the secrets of this environment, and of the matrices and inventories of these sessions, for redaction.

    Missing files are skipped. No command of this machine is run, and standard input is not read.
    """
    register_secrets(os.environ)
    files = [Path(session.folder, matrix.file) for session in sessions for matrix in session.matrices]
    for file in dict.fromkeys(files):
        with suppress(HetgpuError, OSError):
            matrix = read_matrix(find_matrix(file, file.parent), os.environ)
            register_secrets({}, *settings_of(matrix))
    given = [(session.folder, text) for session in sessions for text in _values(_options(session), _INVENTORY)]
    for folder, text in dict.fromkeys(given):
        with suppress(HetgpuError, OSError):
            spec = spec_of(text)
            place = Path(folder, os.path.expanduser(spec.path or "" if spec else text))  # noqa: PTH111 - as elsewhere
            if spec is None or spec.is_file:
                source = f"{spec.kind}:{place}" if spec else place
                register_secrets({}, *read_inventory(source, files_only=True).settings())


def _rejudge_cell(cell: CellRecord, folder: RunFolder, basis: _Basis) -> Outcome | None:
    """Judge the log of a cell again. Return None if there is none, or its test failed for a reason of its own.

    Raises RecordError if the stored job is damaged, or of a newer version.
    """
    path = folder.job(cell.label)
    result = read_result(path) if path.exists() else None
    if (
        result is None
        or not folder.log(cell.label).exists()
        or any(one.judge == SCENARIO for one in cell.outcome.findings)
    ):
        return None
    # The run may have been moved: use the log beside the job.
    further = [again for _, again in launches(folder, cell.label)]
    judged = [_rejudge_attempt(one, cell.label, before, basis) for one, before in saved_attempts(folder, cell.label)]
    judged.append(_rejudge_attempt(folder, cell.label, result, basis, further))
    return replace(settled(judged), concerns=cell.outcome.concerns, debug=cell.outcome.debug)


def _rejudge_attempt(
    folder: RunFolder, label: str, result: RunResult, basis: _Basis, further: Sequence[RunResult] = ()
) -> tuple[str, Outcome]:
    """Judge the log of an attempt; return the path of the log from the run's folder, and the outcome."""
    log = folder.log(label)
    outcome = judge_output(
        read_job(folder.job(label)), replace(result, output=str(log)), basis.known, further, basis.own
    )
    return str(log.relative_to(folder.path)), outcome


def _bases(
    run: Path, record: RunRecord, added: Sequence[Path], signatures: Sequence[Path]
) -> Callable[[CellRecord], _Basis]:
    """Return a function from a cell to its basis. Each site of a merged run has its own."""
    sites = record.sites
    sessions: dict[str, list[SessionStarted]] = {"": []}
    for session in record.sessions:
        place = next((sites[one.name] for one in session.matrices if one.name in sites), "")
        sessions.setdefault(place, []).append(session)
    found = {site: _basis(run, several, added, signatures) for site, several in sessions.items()}
    return lambda cell: found.get(sites.get(cell.matrix, ""), found[""])


def _basis(run: Path, sessions: Sequence[SessionStarted], added: Sequence[Path], signatures: Sequence[Path]) -> _Basis:
    """Return the known failures and the rules that the run used, or those of other files.

    Raises UsageError if one of the run's files is missing.
    """
    known = tuple(added) or _files_of(run, sessions, _KNOWLEDGE, "known failures", "[]")
    rules = tuple(signatures) or _files_of(run, sessions, _SIGNATURES, "rules", "rules: {}")
    return _Basis(known_failures(known) if known else None, signature_rules(rules))


def _files_of(run: Path, sessions: Sequence[SessionStarted], option: str, what: str, none: str) -> tuple[Path, ...]:
    """Return the files that the run's sessions had for an option."""
    files = [Path(session.folder, file) for session in sessions for file in _values(_options(session), option)]
    gone = next((file for file in files if not file.is_file()), None)
    if gone:
        raise UsageError(
            f"{run}: its verdicts rest on the {what} in {gone}, which is no file now; no verdict was touched. "
            f"Give them with {option.replace('hetgpu-', '')} FILE (a file with {none} stands for none)"
        )
    return tuple(dict.fromkeys(files))


def _rerun_command(cell: CellRecord, sessions: Sequence[SessionStarted]) -> str:
    """Format the command that runs a cell again, with the options of the last session with its matrix."""
    had = ((one.file, _options(session)) for session in sessions for one in session.matrices if one.name == cell.matrix)
    *_, (file, options) = ((f"{cell.matrix}.yaml", ()), *had)
    return shlex.join(rerun_argv(file, cell.scenario, options))


def _options(session: SessionStarted) -> tuple[str, ...]:
    """Return the options that a session's cells need again, from the command line if the journal lacks them."""
    given = ((option, value) for option in _OPTIONS for value in _values(session.argv, option))
    return session.options or tuple(itertools.chain.from_iterable(given))


def _values(words: Sequence[str], option: str) -> Iterator[str]:
    """Yield the values of an option, given as two words or as one."""
    for word, after in itertools.pairwise((*words, "")):
        if word == option:
            yield after
        elif word.startswith(f"{option}="):
            yield word.removeprefix(f"{option}=")
