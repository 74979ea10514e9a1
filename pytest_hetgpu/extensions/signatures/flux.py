"""Flux: ends of jobs in the output of its commands, its shell and a job's event logs.

src/cmd/job/attach.c and src/common/libjob/job.c print exceptions and exit codes, src/shell/log.c the shell's log,
src/shell/task.c and doom.c the ends of tasks. Exceptions are raised in src/modules/job-manager, job-exec and src/shell.
Users append the event log (RFC 18) after the output, so lines are not in the order of time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Phase, Priority, slug, token
from pytest_hetgpu.extensions.signatures.engine.exits import ExitReason, exit_by_code, exit_by_signal, signal_number
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_LONGEST = 8192
_MOST = 10_000
_LAUNCH = Kind.LAUNCH_FAILURE
_CANCELLATION = "cancelled@flux"

_PRINTED = lazy(r"job\.exception (?:\S+ )?type=(?P<type>[\w-]+) severity=(?P<severity>\d{1,3}) ?(?P<note>.*)")
_TASKS = lazy(r"flux-job: (?:task\(s\)|job shell) (?:exited with exit code (?P<code>\d{1,9})|(?P<signal>\S.*?))\s*$")
_SHELL = lazy(r"flux-shell(?:\[(?P<rank>\d+)\])?: +(?P<level>FATAL|ERROR): (?P<note>.*)")
_COMMAND = lazy(r"\bflux-(?:run|submit|alloc|batch|bulksubmit|mini|start): ERROR: (?P<note>.*)")
_EVENT = lazy(r'"name": ?"(?P<name>exception|shell\.task-exit|complete|finish)"')
_FIELD = lazy(r'"(?P<name>\w+)": ?(?:"(?P<text>(?:[^"\\]|\\.){0,2000})"|(?P<number>-?\d{1,18}))')

# Notes of exceptions of type exec, and fatal errors of the shell.
_START = lazy(r"task (?P<rank>\d+) \(host (?P<host>[^()\s]+)\): start failed: (?P<program>.*?): (?P<why>[^:]+)$")
_DOOMED = lazy(
    r"(?:task|shell) rank (?P<rank>\d+) on host (?P<host>\S+) (?:failed|exited)(?: \((?P<how>[^()]*(?:\([^()]*\))?)\))?"
    r"(?= and exit-)"
)
_ABORT = lazy(r"(?:PMI|MPI)_Abort(?::.*?\brank (?P<rank>\d+))?")
_SHELL_DIED = lazy(r"shell rank (?P<rank>\d+) \(on (?P<host>[^()\s]+)\): (?P<how>\S.*)$")
_NODE = lazy(r"node failure on (?P<host>\S+)|lost contact with job shell")
# The doom plug-in ends the other ranks.
_OTHERS = lazy(r"^doom: |\band exit-(?:timeout|on-error)\b")
_NEVER = lazy(r"terminated before first barrier|start barrier timeout|exec error|start failed|failed to start")


class Flux(LogParser):
    """Parser of exceptions, exits, and their events."""

    triggers = (
        b"job.exception ",
        b"flux-job: task(s) ",
        b"flux-job: job shell ",
        b"flux-shell",
        b'"name":"exception"',
        b'"name":"shell.task-exit"',
        b'"name":"complete"',
        b'"name":"finish"',
        *(
            f"flux-{name}: ERROR: ".encode()
            for name in ("run", "submit", "alloc", "batch", "bulksubmit", "mini", "start")
        ),
    )

    def __init__(self) -> None:
        self._matches: list[FailureMatch] = []
        self._statuses: list[tuple[LogLine, int]] = []
        self._exits: dict[int, RankExit] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if found := _PRINTED.search(text):
            self._exception(found["type"], int(found["severity"]), found["note"].strip(), line)
        elif (found := _EVENT.search(text)) and text.lstrip().startswith("{"):
            self._event(found["name"], text, line)
        elif found := _TASKS.search(text):
            number = signal_number(found["signal"] or "")
            if found["code"] or number:
                self._add(exit_by_code(int(found["code"])) if found["code"] else exit_by_signal(number or 0), line)
        elif found := _SHELL.search(text):
            self._shell(found["level"], found["note"].strip(), line)
        elif found := _COMMAND.search(text):
            self._add(ExitReason(_LAUNCH, f"{slug(found['note'])}@flux", Priority.CAUSE, detail=found["note"]), line)

    def finish(self) -> Sequence[FailureMatch]:
        told = bool(self._matches)
        for line, status in [] if told else self._statuses:
            self._add(exit_by_signal(status & 0x7F) if status & 0x7F else exit_by_code(status >> 8 & 0xFF), line)
        self._statuses.clear()
        signals = {match.signature.signal for match in self._matches if match.signature.signal}
        if signals == {"SIGTERM"}:
            return tuple(map(_cancelled, self._matches))
        return tuple(self._matches)

    def exits(self) -> Sequence[RankExit]:
        return tuple(self._exits.values())

    def _event(self, name: str, text: str, line: LogLine) -> None:
        """Take one line of an event log: JSON, searched by field, since a log may cut it."""
        fields = {found["name"]: found["text"] or found["number"] or "" for found in _FIELD.finditer(text)}
        if name == "exception":
            severity = fields.get("severity", "")
            note = fields.get("note", "").replace('\\"', '"')
            self._exception(
                fields.get("type", ""), int(severity) if severity.isdecimal() and len(severity) < 4 else 0, note, line
            )
        elif name == "shell.task-exit":
            self._task(fields, line)
        elif (status := fields.get("status", "")).isdecimal() and 0 < int(status) < 1 << 16:
            self._statuses = (self._statuses or [(line, int(status))])[:1]

    def _task(self, fields: dict[str, str], line: LogLine) -> None:
        rank, number, code = (_number(fields.get(name)) for name in ("rank", "signaled", "exitcode"))
        if not number and not code:
            return
        if rank is not None and len(self._exits) < _MOST:
            self._exits.setdefault(rank, RankExit(rank, number or None, None if number else code))
        self._add(exit_by_signal(number) if number else exit_by_code(code or 0), line, rank)

    def _exception(self, kind: str, severity: int, note: str, line: LogLine) -> None:
        """Take an exception: at severity 0 it ended the job."""
        if severity:
            return
        if kind == "cancel":
            reason = ExitReason(Kind.TIMEOUT, _CANCELLATION, Priority.LIMIT, detail=note or None)
        elif kind == "timeout":
            reason = ExitReason(Kind.TIMEOUT, "time-limit@flux", Priority.LIMIT, detail=note or None)
        elif kind in ("exec", "mpir", "node-failure", "lost-shell"):
            self._ended(note, line, ExitReason(Kind.ERROR, f"{slug(note)}@flux", detail=note or None))
            return
        else:  # alloc, dependency, prolog, validate and what plug-ins raise before a job can start
            key = "unsatisfiable@flux" if "unsatisfiable" in note else f"{kind or 'exception'}@flux"
            reason = ExitReason(_LAUNCH, key, Priority.CAUSE, detail=note or None)
        self._add(reason, line)

    def _shell(self, level: str, note: str, line: LogLine) -> None:
        """Take a line of the job's shell: a fatal error ends the shell."""
        is_fatal = level == "FATAL"
        reason = ExitReason(
            _LAUNCH, f"{slug(note)}@flux-shell", Priority.RELAYED if is_fatal else Priority.SYMPTOM, detail=note
        )
        if is_fatal:
            self._ended(note, line, reason)
        else:
            self._add(reason, line, fatal=False)

    def _ended(self, note: str, line: LogLine, otherwise: ExitReason) -> None:
        """Take the tasks and nodes in a note; `otherwise` is used if it names neither."""
        for pattern in (_START, _DOOMED, _SHELL_DIED, _ABORT, _NODE):
            if found := pattern.search(note):
                break
        else:
            never = bool(_NEVER.search(note))
            self._add(otherwise._replace(kind=_LAUNCH) if never else otherwise, line)
            return
        groups = found.groupdict()
        how = groups.get("how") or ""
        if pattern is _START:
            missing = groups["why"].startswith("No such file")
            key = f"no-program@{token(groups['program'])}" if missing else f"exec@{token(groups['why'])}"
            reason = ExitReason(_LAUNCH, key, Priority.CAUSE, detail=groups["why"])
        elif number := signal_number(how):
            reason = exit_by_signal(number)
        elif code := re.fullmatch(r"Exit (\d{1,9})", how):
            reason = exit_by_code(int(code[1]))
        elif pattern is _ABORT:
            reason = ExitReason(Kind.ERROR, "MPI_Abort", detail=note)
        elif pattern is _NODE:
            reason = ExitReason(Kind.NETWORK_FAILURE, "node-failure@flux", detail=note)
        else:
            reason = ExitReason(Kind.ERROR, "exit@task", detail=note)
        self._add(reason, line, _number(groups.get("rank")), groups.get("host"))

    def _add(
        self, reason: ExitReason, line: LogLine, rank: int | None = None, host: str | None = None, *, fatal: bool = True
    ) -> None:
        if len(self._matches) >= _MOST:
            return
        signature = Signature(
            reason.kind,
            reason.key,
            line.quote,
            line.number,
            signal=reason.signal,
            detail=reason.detail,
            ranks=() if rank is None else (rank,),
            hosts=(host,) if host else (),
        )
        ends_others = Phase.FINISHING if _OTHERS.search(reason.detail or "") else None
        self._matches.append(FailureMatch(signature, reason.priority, fatal=fatal, phase=ends_others))


def _cancelled(match: FailureMatch) -> FailureMatch:
    """Return a cancellation as the exit of the first task, by SIGTERM.

    Lost connections of its peers are consequences.
    """
    if match.signature.key != _CANCELLATION:
        return match
    return replace(match, priority=Priority.EXIT, signature=replace(match.signature, signal="SIGTERM"))


def _number(text: str | None) -> int | None:
    """Return a field's number within the range of a rank, signal or code."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else None
