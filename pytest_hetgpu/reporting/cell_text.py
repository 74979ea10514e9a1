"""What reports say of a cell, in words: one source for JUnit and Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

from pytest_hetgpu.model import rank_outcome
from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.job import Expectation
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.folder import RAW, RunFolder
from pytest_hetgpu.store.properties import before, flaky
from pytest_hetgpu.store.redaction.redact import redact_argv
from pytest_hetgpu.store.text import one_line

Rerun = Callable[[str, str], str] | str

_MESSAGE = 300
_LINE = 1000
_COMMAND = 8000
_FINDINGS = 20


def words(kind: Kind) -> str:
    """`wrong result`, for people."""
    return kind.value.replace("_", " ")


def expected(expectation: Expectation | None) -> str:
    """`crash SIGSEGV@...` or `hang or timeout`: what a cell was expected to do instead of passing."""
    if expectation is None:
        return "a failure"
    what = one_line(expectation.known or "") or " or ".join(kind.value for kind in expectation.kinds)
    signatures = " or ".join(one_line(signature) for signature in expectation.signatures)
    return f"{what} {signatures}".strip() or "a failure"


def headline(record: CellRecord) -> str:
    """One line of at most 300 characters: the verdict, the kind and the signature's key (or, without one, why)."""
    outcome = record.outcome
    found = f"flaky: {flaky(outcome)}" if outcome.flaky else outcome.kind.value
    if outcome.signature:
        found = f"{found} {outcome.signature.key}"
    elif outcome.verdict is Verdict.NEW and outcome.why:
        found = f"{found}: {outcome.why}"
    said = {
        Verdict.OK: found,
        Verdict.NEW: f"new {found}",
        Verdict.KNOWN: f"known: {known_as(record)}",
        Verdict.CHANGED: f"changed: found {found}, expected {expected(outcome.expectation)}",
        Verdict.FIXED: f"fixed: found {found}, expected {expected(outcome.expectation)} ({known_as(record)})",
        Verdict.NOT_RUN: f"{outcome.why or 'not run'}{f' ({record.issue})' if record.issue else ''}",
    }
    return one_line(said[outcome.verdict], _MESSAGE)


def known_as(record: CellRecord) -> str:
    """By what a known failure is known: its issue link, its reason, or what was expected."""
    expectation = record.outcome.expectation
    return record.issue or (expectation.reason if expectation else None) or expected(expectation)


def details(record: CellRecord, rerun: Rerun) -> Iterator[str]:
    """Everything known of a cell that is not ok, a line each: why, findings, signature, issue, commands."""
    outcome = record.outcome
    yield one_line(outcome.why or headline(record), _LINE)
    for finding in outcome.findings[:_FINDINGS]:
        yield one_line(f"{finding.judge} ({finding.kind.value}): {finding.why}", _LINE)
    if outcome.signature:
        yield f"signature: {one_line(outcome.signature.key, _LINE)}"
        yield f"line {outcome.signature.line}: {one_line(outcome.signature.primary_line, _LINE)}"
    told = rank_outcome.describe(outcome.fates)
    if told:
        yield f"ranks: {one_line(told, _LINE)}"
    yield from (one_line(line, _LINE) for line in knowing(outcome.known))
    if outcome.others:
        yield f"also in the log: {one_line(', '.join(f'{o.key} (line {o.line})' for o in outcome.others[:5]), _LINE)}"
    yield from (one_line(f"attempt {number}: {line}", _LINE) for number, line in enumerate(before(outcome), 1))
    if outcome.debug:
        yield one_line(debugged(outcome), _LINE)
    yield from (f"note: {one_line(note, _LINE)}" for note in outcome.notes)
    if outcome.expectation:
        yield f"expected: {expected(outcome.expectation)}"
    if record.issue:
        yield f"issue: {one_line(record.issue, _LINE)}"
    command = command_of(record)
    if command:
        yield f"command: {command}"
    yield f"run again: {again(record, rerun)}"


def brief(record: CellRecord, rerun: Rerun) -> Iterator[str]:
    """Of that what a report has room for that holds very many cells: why, signature, and the command."""
    yield one_line(record.outcome.why or headline(record))
    if record.outcome.signature:
        yield f"signature: {one_line(record.outcome.signature.key)}"
    yield f"run again: {again(record, rerun)}"


def knowing(known: Sequence[KnownFailure]) -> Iterator[str]:
    """What is established about a failure, some lines an entry: cause, cure, settings, link."""
    for entry in known:
        sure = "" if entry.status == "established" else f" ({entry.status})"
        yield f"known{sure}: {entry.title} [{entry.id}]: {entry.cause}"
        settings = " ".join(entry.typed)
        if entry.fix or settings:
            yield f"  cure: {' '.join(filter(None, (entry.fix, settings)))}"
        if entry.fixed_in:
            yield f"  fixed in {entry.fixed_in}"
        if entry.url:
            yield f"  see {entry.url}"


def debugged(outcome: Outcome) -> str:
    """What the debug rerun did, and where its log is; "" where there was none."""
    if outcome.debug is None:
        return ""
    own = outcome.signature.key if outcome.signature else ""
    same = outcome.debug.kind is outcome.kind and outcome.debug.key == own
    what = "failed in the same way" if same else f"ended as {outcome.debug.kind.value} {outcome.debug.key}".strip()
    return f"debug rerun: {what}, {outcome.debug.log}"


def command_of(record: CellRecord) -> str:
    """What was started, as one would type it in a shell; empty where that is unknown."""
    argv = record.result.argv if record.result else record.argv
    return one_line(shlex.join(redact_argv(argv)), _COMMAND) if argv else ""


def again(record: CellRecord, rerun: Rerun) -> str:
    """The command that runs just this cell again: asked of `rerun`, or its text with {matrix} and {label} filled in."""
    if callable(rerun):
        return one_line(rerun(record.matrix, record.label), _COMMAND)
    return one_line(rerun.replace("{matrix}", record.matrix).replace("{label}", record.label), _COMMAND)


def private(folder: RunFolder) -> str:
    """How many logs held secrets, and where they are as they were printed; "" if none did."""
    count = folder.raw_logs()
    if not count:
        return ""
    logs, are = ("log", "log is") if count == 1 else ("logs", "logs are")
    place = f"{folder.path.parent.name}/{RAW}/{folder.path.resolve().name}"
    return f"{count} {logs} held secrets: the text here is redacted, the raw {are} in {place} (not for publishing)"
