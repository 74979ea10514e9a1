"""Merge of the reports of one death: several handlers of one signal, a last error, the launcher's echo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, Priority, Process
from pytest_hetgpu.extensions.signatures.engine.frames import crash_key
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_ABORT = "SIGABRT"
_INTERPRETER = "Fatal Python error: "
# A quoted line is as it stands in the log.
_COLOURS = lazy(r"\x1b\[[0-9;:]*[mK]")
# Ranks write at the same time, but an abort is reported at once.
_NEAR = 1000
_MOST_WAITING = 200


def merge_reports(
    ordered: Sequence[FailureMatch], with_rank: Callable[[FailureMatch], FailureMatch]
) -> list[FailureMatch]:
    """Merge matches, sorted by line, into one per process that died of a signal.

    `with_rank` adds the rank of a process.
    """
    merged = _with_interpreters(_with_last_errors(_one_per_process(ordered)))
    return _drop_echoes([with_rank(match) for match in merged])


def _one_per_process(ordered: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Reduce handlers' reports to one cause per process; keep all other matches.

    If two handlers report one signal, the first keeps its text and takes the other's frame if it has none. A further
    signal of the same process is one that its handler received.
    """
    result: list[FailureMatch] = []
    first: dict[Process, int] = {}
    for match in ordered:
        if not (match.process and _is_report(match)):
            result.append(match)
        elif match.process not in first:
            first[match.process] = len(result)
            result.append(match)
        else:
            at = first[match.process]
            if result[at].signature.signal == match.signature.signal:
                result[at] = replace(result[at], signature=_framed(result[at].signature, match.signature))
            else:
                result.append(replace(match, priority=Priority.CONSEQUENCE))
    return result


def _is_report(match: FailureMatch) -> bool:
    """Return whether a match is the report of a death by the process's own handler or its last error."""
    return match.fatal and match.priority <= Priority.RELAYED and match.signature.signal is not None


def _framed(head: Signature, other: Signature) -> Signature:
    """Return the first handler's report, completed by the second; the text of an assertion or frozen process stays."""
    head = replace(head, detail=head.detail or other.detail)
    if head.library or head.function or not (other.library or other.function):
        return replace(head, entry_point=head.entry_point or other.entry_point)
    return replace(
        head,
        key=other.key if head.kind in (Kind.CRASH, Kind.HANG) else head.key,
        library=other.library,
        function=other.function,
        entry_point=other.entry_point,
    )


def _with_last_errors(matches: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Merge reports of an abort with the error that the process printed just before.

    That text names no process. If several wait for their report, the one with the same function is merged, else the
    first.
    """
    result: list[FailureMatch | None] = []
    waiting: list[int] = []
    for match in matches:
        if _is_last_error(match) and len(waiting) < _MOST_WAITING:
            waiting.append(len(result))
        elif _is_bare_abort(match):
            place = _matching_report([(at, said) for at in waiting if (said := result[at])], match)
            if place is not None:
                waiting.remove(place)
                said = result[place]
                result[place] = _with_last_error(said, match) if said else match
                continue
        result.append(match)
    return [match for match in result if match]


def _is_last_error(match: FailureMatch) -> bool:
    return match.process is None and _is_report(match) and match.signature.signal == _ABORT


def _is_bare_abort(match: FailureMatch) -> bool:
    """Return whether a match is a handler's report of an abort without a reason."""
    signature = match.signature
    return bool(match.process and _is_report(match) and signature.signal == _ABORT and not signature.detail)


def _matching_report(waiting: Sequence[tuple[int, FailureMatch]], report: FailureMatch) -> int | None:
    death = report.signature
    fitting = [
        (at, said.signature)
        for at, said in waiting
        if death.line - _NEAR < said.signature.line
        and _agree(said.signature.ranks, death.ranks)
        and _agree(said.signature.hosts, death.hosts)
    ]
    same = (at for at, said in fitting if said.function and said.function == death.function)
    return next(same, fitting[0][0] if fitting else None)


def _with_interpreters(matches: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Merge faulthandler's message about a signal with the report of the next handler, or the previous one.

    The message names no process, and no frame below the interpreter. Either may come first.
    """
    result: list[FailureMatch | None] = list(matches)
    told = [at for at, match in enumerate(matches) if _of_interpreter(match)][:_MOST_WAITING]
    reports = [at for at, match in enumerate(matches) if match.process and _is_report(match)]
    for at in told:
        words = matches[at]
        near = [place for place in reports if _of_one_death(words.signature, matches[place].signature)]
        place = next((place for place in near if place > at), near[-1] if near else None)
        if place is not None:
            reports.remove(place)
            result[min(at, place)] = _with_interpreter(words, matches[place])
            result[max(at, place)] = None
    return [match for match in result if match]


def _of_interpreter(match: FailureMatch) -> bool:
    signature = match.signature
    return (
        match.process is None
        and signature.signal != _ABORT
        and _INTERPRETER in _COLOURS.sub("", signature.primary_line)
    )


def _of_one_death(one: Signature, other: Signature) -> bool:
    near = abs(one.line - other.line) < _NEAR and one.signal == other.signal
    return near and _agree(one.ranks, other.ranks) and _agree(one.hosts, other.hosts)


def _with_interpreter(words: FailureMatch, report: FailureMatch) -> FailureMatch:
    """Return the first of both, completed by the other; a Python position beats a library without a function."""
    said, death = words.signature, report.signature
    head = said if said.line < death.line else death
    signature = replace(
        head,
        key=death.key if death.function else said.key,
        detail=death.detail or said.detail,
        library=death.library,
        function=death.function,
        entry_point=death.entry_point,
        ranks=said.ranks or death.ranks,
        hosts=said.hosts or death.hosts,
    )
    return replace(report, signature=signature, priority=min(words.priority, report.priority))


def _agree(one: Sequence[object], other: Sequence[object]) -> bool:
    return not one or not other or one == other


def _with_last_error(said: FailureMatch, report: FailureMatch) -> FailureMatch:
    """Return an abort with its last error, and the report's frame; an assertion names its function more exactly."""
    words, death = said.signature, report.signature
    library, function = death.library or words.library, words.function or death.function
    framed = words.kind is Kind.CRASH and (library or function)
    # The report's own key is of the frame at fault, which may lie below the C++ runtime.
    told = death.key if death.library and not words.function else crash_key(_ABORT, library, function)
    signature = replace(
        words,
        key=told if framed else words.key,
        library=library,
        function=function,
        entry_point=death.entry_point,
        ranks=death.ranks or words.ranks,
        hosts=death.hosts or words.hosts,
    )
    return replace(said, signature=signature, process=report.process)


def _drop_echoes(matches: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Drop messages of launcher, shell or kernel about a death that is reported in full; keep the rank they name.

    They may name another signal than the report: a handler of SIGABRT may die of SIGSEGV.
    """
    reported = [match for match in matches if _is_report(match)]
    signals = Counter(match.signature.signal for match in reported)
    processes = {match.process for match in reported if match.process}
    ranks = {rank for match in reported for rank in match.signature.ranks}
    echoes = [
        match
        for match in matches
        if _is_echo(match)
        and (
            match.signature.signal in signals
            or match.process in processes
            or bool(ranks.intersection(match.signature.ranks))
        )
    ]
    dropped, told = set(map(id, echoes)), _Echoes(echoes)
    return [
        _with_echo(match, signals, told) if _is_report(match) else match
        for match in matches
        if id(match) not in dropped
    ]


def _is_echo(match: FailureMatch) -> bool:
    """Return whether a match is another's message about an exit: a launcher's, a shell's or the kernel's."""
    if match.signature.signal is None:
        return False
    return match.priority is Priority.EXIT or (match.priority is Priority.RELAYED and not match.fatal)


class _Echoes:
    """The ranks that echoes name, by process and by signal."""

    def __init__(self, echoes: Sequence[FailureMatch]) -> None:
        self.of_process: dict[Process | None, set[int]] = {}
        self.of_signal: dict[str | None, set[int]] = {}
        for echo in echoes:
            self.of_process.setdefault(echo.process, set()).update(echo.signature.ranks)
            self.of_signal.setdefault(echo.signature.signal, set()).update(echo.signature.ranks)


def _with_echo(match: FailureMatch, signals: Counter[str | None], echoes: _Echoes) -> FailureMatch:
    """Return a crash with the launcher's rank: by process, or if only one process and one rank died of that signal."""
    signature = match.signature
    if signature.ranks:
        return match
    own = echoes.of_process.get(match.process, set()) if match.process else set()
    alike = echoes.of_signal.get(signature.signal, set())
    named = own or (alike if signals[signature.signal] == 1 else set())
    return replace(match, signature=replace(signature, ranks=tuple(named))) if len(named) == 1 else match
