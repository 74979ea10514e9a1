"""The text of reports about a cell: one source for JUnit and Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

from pytest_hetgpu.model import rank_outcome
from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.job import Expectation
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.folder import PRIVATE_LOGS, RunFolder
from pytest_hetgpu.store.properties import attempt_lines, describe_flaky
from pytest_hetgpu.store.redaction.redact import redact_argv
from pytest_hetgpu.store.text import one_line

Rerun = Callable[[str, str], str] | str

_MESSAGE = 300
_LINE = 1000
_COMMAND = 8000
_FINDINGS = 20


def display_kind(kind: Kind) -> str:
    """Format a kind for people: `wrong result`."""
    return kind.value.replace("_", " ")


def describe_expectation(expectation: Expectation | None) -> str:
    """Format the expected failure of a cell: `crash SIGSEGV@...` or `hang or timeout`."""
    if expectation is None:
        return "a failure"
    what = one_line(expectation.known or "") or " or ".join(kind.value for kind in expectation.kinds)
    signatures = " or ".join(one_line(signature) for signature in expectation.signatures)
    return f"{what} {signatures}".strip() or "a failure"


def headline(record: CellRecord) -> str:
    """Return one line of at most 300 characters: the verdict, the kind, and the signature's key or else the reason."""
    outcome = record.outcome
    found = f"flaky: {describe_flaky(outcome)}" if outcome.flaky else outcome.kind.value
    if outcome.signature:
        found = f"{found} {outcome.signature.key}"
    elif outcome.verdict is Verdict.NEW and outcome.why:
        found = f"{found}: {outcome.why}"
    expected = describe_expectation(outcome.expectation)
    headlines = {
        Verdict.OK: found,
        Verdict.NEW: f"new {found}",
        Verdict.KNOWN: f"known: {known_by(record)}",
        Verdict.CHANGED: f"changed: found {found}, expected {expected}",
        Verdict.FIXED: f"fixed: found {found}, expected {expected} ({known_by(record)})",
        Verdict.NOT_RUN: f"{outcome.why or 'not run'}{f' ({record.issue})' if record.issue else ''}",
    }
    return one_line(headlines[outcome.verdict], _MESSAGE)


def known_by(record: CellRecord) -> str:
    """Return the identity of a known failure: its issue link, its reason, or the expectation."""
    expectation = record.outcome.expectation
    return record.issue or (expectation.reason if expectation else None) or describe_expectation(expectation)


def detail_lines(record: CellRecord, rerun: Rerun) -> Iterator[str]:
    """Yield all facts of a cell that is not ok, one per line: reason, findings, signature, issue, commands."""
    outcome = record.outcome
    yield one_line(outcome.why or headline(record), _LINE)
    for finding in outcome.findings[:_FINDINGS]:
        yield one_line(f"{finding.judge} ({finding.kind.value}): {finding.why}", _LINE)
    if outcome.signature:
        yield f"signature: {one_line(outcome.signature.key, _LINE)}"
        yield f"line {outcome.signature.line}: {one_line(outcome.signature.primary_line, _LINE)}"
    ranks = rank_outcome.describe(outcome.rank_outcomes)
    if ranks:
        yield f"ranks: {one_line(ranks, _LINE)}"
    yield from (one_line(line, _LINE) for line in known_failure_lines(outcome.known))
    if outcome.others:
        yield f"also in the log: {one_line(', '.join(f'{o.key} (line {o.line})' for o in outcome.others[:5]), _LINE)}"
    yield from (one_line(f"attempt {number}: {line}", _LINE) for number, line in enumerate(attempt_lines(outcome), 1))
    if outcome.debug:
        yield one_line(describe_debug_rerun(outcome), _LINE)
    yield from (f"note: {one_line(note, _LINE)}" for note in outcome.notes)
    if outcome.expectation:
        yield f"expected: {describe_expectation(outcome.expectation)}"
    if record.issue:
        yield f"issue: {one_line(record.issue, _LINE)}"
    command = format_command(record)
    if command:
        yield f"command: {command}"
    yield f"run again: {format_rerun(record, rerun)}"


def brief_lines(record: CellRecord, rerun: Rerun) -> Iterator[str]:
    """Yield the most important lines of a cell, for a report of very many cells: reason, signature, command."""
    yield one_line(record.outcome.why or headline(record))
    if record.outcome.signature:
        yield f"signature: {one_line(record.outcome.signature.key)}"
    yield f"run again: {format_rerun(record, rerun)}"


def label_known(entry: KnownFailure) -> str:
    """Return `known`, `known (reported)`, or `possible` if the run leaves open whether the cause fits."""
    if entry.unproven:
        return entry.certainty
    return "known" if entry.status == "established" else f"known ({entry.status})"


def known_failure_lines(known: Sequence[KnownFailure]) -> Iterator[str]:
    """Yield lines on each known failure: cause, missing proof, fix, settings, link."""
    for entry in known:
        yield f"{label_known(entry)}: {entry.title} [{entry.id}]: {entry.cause}"
        if entry.unproven:
            yield f"  proven if {' and '.join(entry.unproven)}"
        settings = " ".join(entry.typed)
        if entry.fix or settings:
            yield f"  cure: {' '.join(filter(None, (entry.fix, settings)))}"
        if entry.fixed_in:
            yield f"  fixed in {entry.fixed_in}"
        if entry.url:
            yield f"  see {entry.url}"


def describe_debug_rerun(outcome: Outcome) -> str:
    """Describe the result of the debug rerun and the place of its log; return "" if there was none."""
    if outcome.debug is None:
        return ""
    own = outcome.signature.key if outcome.signature else ""
    same = outcome.debug.kind is outcome.kind and outcome.debug.key == own
    what = "failed in the same way" if same else f"ended as {outcome.debug.kind.value} {outcome.debug.key}".strip()
    return f"debug rerun: {what}, {outcome.debug.log}"


def format_command(record: CellRecord) -> str:
    """Format the command of the cell as one would type it in a shell; return "" if it is unknown."""
    argv = record.result.argv if record.result else record.argv
    return one_line(shlex.join(redact_argv(argv)), _COMMAND) if argv else ""


def format_rerun(record: CellRecord, rerun: Rerun) -> str:
    """Return the command that runs just this cell again.

    Call `rerun`, or fill in {matrix} and {label} if it is a text.
    """
    if callable(rerun):
        return one_line(rerun(record.matrix, record.label), _COMMAND)
    return one_line(rerun.replace("{matrix}", record.matrix).replace("{label}", record.label), _COMMAND)


def describe_private_logs(folder: RunFolder) -> str:
    """Count the logs with secrets and name the folder of the raw logs; return "" if there are none."""
    count = folder.count_raw_logs()
    if not count:
        return ""
    logs, are = ("log", "log is") if count == 1 else ("logs", "logs are")
    place = f"{folder.path.parent.name}/{PRIVATE_LOGS}/{folder.path.resolve().name}"
    return f"{count} {logs} held secrets: the text here is redacted, the raw {are} in {place} (not for publishing)"
