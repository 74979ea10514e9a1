"""From matches to signatures: reports of one failure merged, the root cause first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, Priority, Process
from pytest_hetgpu.extensions.signatures.engine.merge import merge_reports
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST_NAMED = 100_000
_LONGEST_WORDS = 40
_NUMBERS = lazy(r"\d+")
_PROVING = frozenset(Priority) - {Priority.UNSPECIFIC, Priority.CONSEQUENCE}
_MET_IN_A_CALL = (Kind.TRANSPORT_UNAVAILABLE, Kind.OUT_OF_MEMORY, Kind.NETWORK_FAILURE, Kind.ERROR)
_OWN_FAULTS = frozenset(("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"))
_OOM_KILLER = "oom-kill@"


def by_priority(
    matches: Iterable[FailureMatch],
    ranks: Mapping[Process, int] | None = None,
    survived: Callable[[FailureMatch], bool] = lambda _: True,
) -> tuple[Signature, ...]:
    """Return every failure once, the most telling first: by priority, then by line.

    Reports of one death are merged (`merge`). `ranks` maps processes to ranks. `survived` returns whether the program
    continued after a message that a library only logged.
    """
    ordered = sorted(_without_weak_hangs(tuple(matches)), key=lambda match: match.signature.line)
    known = dict(ranks or {})
    known |= {r.process: r.signature.ranks[0] for r in ordered if r.process and len(r.signature.ranks) == 1}
    joined = merge_reports(ordered, lambda match: _with_rank(match, known))
    joined = _crashed(_kills_after_oom([_limited(match) for match in joined]))
    proven = any(match.fatal and match.priority in _PROVING for match in joined)
    died = any(match.fatal and match.signature.signal for match in joined)
    joined.sort(key=lambda match: _place(match, proven and (died or survived(match)), proven))
    joined[:1] = [_called(match, joined[1:]) for match in joined[:1]]
    alike: dict[str, list[Signature]] = {}
    for match in joined:
        alike.setdefault(match.signature.key, []).append(match.signature)
    return tuple(map(_merged, alike.values()))


def _place(match: FailureMatch, survived: bool, proven: bool) -> tuple[Priority, bool, bool, int]:
    """Return the sort key of a match: priority, then line; among consequences a signal is first, a lost peer last.

    A message that a run may survive explains nothing if a fatal one is there. Network errors are an exception: a rank
    that waits for an unreachable peer runs into a time limit. Such a message also counts if it is the last line before
    the launcher's message about an exit code.
    """
    priority = match.priority
    if proven and not match.fatal and priority >= Priority.SYMPTOM and match.signature.kind is Kind.ERROR:
        priority = Priority.CONSEQUENCE if survived else Priority.EXIT
    mere = priority is Priority.CONSEQUENCE
    gone = mere and match.signature.kind is Kind.ERROR
    return priority, mere and match.signature.signal is None, gone, match.signature.line


def _without_weak_hangs(matches: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Drop stacks of user frames only, if the log shows another end of the run."""
    ended = any(match.fatal for match in matches)
    return [match for match in matches if not (ended and _is_weak_hang(match))]


def _is_weak_hang(match: FailureMatch) -> bool:
    return match.signature.kind is Kind.HANG and match.priority is Priority.LIMIT and not match.fatal


def _limited(match: FailureMatch) -> FailureMatch:
    """Return death by SIGXCPU as a time limit: the process has used up its processor time."""
    if match.signature.kind is not Kind.CRASH or match.signature.signal != "SIGXCPU":
        return match
    return replace(match, signature=replace(match.signature, kind=Kind.TIMEOUT))


def _kills_after_oom(matches: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Return a kill in a run that ran out of memory as its consequence, though the kernel's message comes last."""
    if not any(match.fatal and match.signature.kind is Kind.OUT_OF_MEMORY for match in matches):
        return list(matches)
    killed = [match for match in matches if match.signature.kind is Kind.CRASH and _by_sigkill(match)]
    return [
        _after_oom(match, bool(killed)) if match.signature.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY) else match
        for match in matches
    ]


def _by_sigkill(match: FailureMatch) -> bool:
    return match.signature.signal == "SIGKILL"


def _after_oom(match: FailureMatch, killed: bool) -> FailureMatch:
    signature = match.signature
    if signature.kind is Kind.CRASH:
        return replace(match, priority=max(match.priority, Priority.EXIT)) if _by_sigkill(match) else match
    by_kernel = killed and signature.signal is None and signature.key.startswith(_OOM_KILLER)
    return replace(match, signature=replace(signature, signal="SIGKILL")) if by_kernel else match


def _crashed(matches: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Prefer the end of a crashed process to messages that a library logged before, which it had survived."""
    dead = [match for match in matches if match.fatal and match.signature.signal in _OWN_FAULTS]
    processes = {match.process for match in dead if match.process}
    ranks = {rank for match in dead for rank in match.signature.ranks}
    return [
        replace(match, priority=max(match.priority, Priority.SYMPTOM))
        if _survivable(match) and (match.process in processes or ranks.intersection(match.signature.ranks))
        else match
        for match in matches
    ]


def _survivable(match: FailureMatch) -> bool:
    return not match.fatal and match.signature.kind is Kind.ERROR and match.signature.signal is None


def _called(first: FailureMatch, others: Iterable[FailureMatch]) -> FailureMatch:
    """Add to the answer the call that an upper layer names without knowing the cause."""
    signature = first.signature
    if signature.entry_point or signature.signal or signature.kind not in _MET_IN_A_CALL:
        return first
    above = (other for other in others if other.priority in (Priority.RELAYED, Priority.UNSPECIFIC))
    entry = next((other.signature.entry_point for other in above if other.signature.entry_point), None)
    return replace(first, signature=replace(signature, entry_point=entry))


def _with_rank(match: FailureMatch, known: Mapping[Process, int]) -> FailureMatch:
    if match.signature.ranks or match.process is None or match.process not in known:
        return match
    return replace(match, signature=replace(match.signature, ranks=(known[match.process],)))


def _words(signature: Signature) -> str:
    """Return the beginning of a message without numbers, the same for equal messages of several ranks.

    A quote may begin with the prefix of a log collector, which all lines have.
    """
    return _NUMBERS.sub("", signature.detail or signature.primary_line.strip())[:_LONGEST_WORDS]


def _merged(alike: Sequence[Signature]) -> Signature:
    """Merge signatures of one key into the first of them, with the ranks and hosts of all."""
    if len(alike) == 1:
        return alike[0]
    words = _words(alike[0])
    first = min((signature for signature in alike if _words(signature) == words), key=lambda signature: signature.line)
    ranks = {rank for signature in alike for rank in signature.ranks}
    hosts = dict.fromkeys(host for signature in alike for host in signature.hosts)
    return replace(
        alike[0],
        primary_line=first.primary_line,
        line=first.line,
        ranks=tuple(sorted(ranks)[:_MOST_NAMED]),
        hosts=tuple(hosts)[:_MOST_NAMED],
        entry_point=next((signature.entry_point for signature in alike if signature.entry_point), None),
    )
