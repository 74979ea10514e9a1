"""From readings to signatures: reports of one failure joined, the root cause first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, Priority, Process
from pytest_hetgpu.extensions.signatures.engine.joining import one_a_death
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.verdict import Kind

_MOST_NAMED = 100_000
_PROVING = frozenset(Priority) - {Priority.UNSPECIFIC, Priority.CONSEQUENCE}
_MET_IN_A_CALL = (Kind.TRANSPORT_UNAVAILABLE, Kind.OUT_OF_MEMORY, Kind.NETWORK_FAILURE, Kind.ERROR)
_OWN_FAULTS = frozenset(("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"))
_OOM_KILLER = "oom-kill@"


def ranked(
    readings: Iterable[FailureMatch],
    ranks: Mapping[Process, int] | None = None,
    survived: Callable[[FailureMatch], bool] = lambda _: True,
) -> tuple[Signature, ...]:
    """Every failure once, the most telling first: by weight, then by line.

    Reports on one death are joined (`joining`). `ranks` says which rank a process was, `survived` whether the program
    went on after what a library merely logged.
    """
    ordered = sorted(readings, key=lambda reading: reading.signature.line)
    known = dict(ranks or {})
    known |= {r.process: r.signature.ranks[0] for r in ordered if r.process and len(r.signature.ranks) == 1}
    joined = one_a_death(ordered, lambda reading: _with_rank(reading, known))
    joined = _crashed(_starved([_limited(reading) for reading in joined]))
    proven = any(reading.certain and reading.weight in _PROVING for reading in joined)
    died = any(reading.certain and reading.signature.signal for reading in joined)
    joined.sort(key=lambda reading: _place(reading, proven and (died or survived(reading)), proven))
    joined[:1] = [_called(reading, joined[1:]) for reading in joined[:1]]
    alike: dict[str, list[Signature]] = {}
    for reading in joined:
        alike.setdefault(reading.signature.key, []).append(reading.signature)
    return tuple(map(_merged, alike.values()))


def _place(reading: FailureMatch, survived: bool, proven: bool) -> tuple[Priority, bool, bool, int]:
    """By what readings are sorted: weight, then line; of mere consequences a signal says most, a lost peer least.

    What a run may survive explains nothing where something proves how it failed, but for what the network did: whoever
    waits for a peer that cannot be reached runs into a time limit. Nor is it nothing where it was the last that anybody
    wrote before the launcher's word on an exit code.
    """
    weight = reading.weight
    if proven and not reading.certain and weight >= Priority.SYMPTOM and reading.signature.kind is Kind.ERROR:
        weight = Priority.CONSEQUENCE if survived else Priority.ENDING
    mere = weight is Priority.CONSEQUENCE
    gone = mere and reading.signature.kind is Kind.ERROR
    return weight, mere and reading.signature.signal is None, gone, reading.signature.line


def _limited(reading: FailureMatch) -> FailureMatch:
    """Who dies of SIGXCPU has used up the processor time that it was given."""
    if reading.signature.kind is not Kind.CRASH or reading.signature.signal != "SIGXCPU":
        return reading
    return replace(reading, signature=replace(reading.signature, kind=Kind.TIMEOUT))


def _starved(readings: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Of a run in which memory ran out: who was killed was killed for that, though the kernel's word comes last."""
    if not any(reading.certain and reading.signature.kind is Kind.OUT_OF_MEMORY for reading in readings):
        return list(readings)
    killed = [reading for reading in readings if reading.signature.kind is Kind.CRASH and _by_sigkill(reading)]
    return [
        _of_starvation(reading, bool(killed)) if reading.signature.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY) else reading
        for reading in readings
    ]


def _by_sigkill(reading: FailureMatch) -> bool:
    return reading.signature.signal == "SIGKILL"


def _of_starvation(reading: FailureMatch, killed: bool) -> FailureMatch:
    signature = reading.signature
    if signature.kind is Kind.CRASH:
        return replace(reading, weight=max(reading.weight, Priority.ENDING)) if _by_sigkill(reading) else reading
    by_kernel = killed and signature.signal is None and signature.key.startswith(_OOM_KILLER)
    return replace(reading, signature=replace(signature, signal="SIGKILL")) if by_kernel else reading


def _crashed(readings: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Of a process that crashed its end is the answer, and not what a library logged before, which it had survived."""
    dead = [reading for reading in readings if reading.certain and reading.signature.signal in _OWN_FAULTS]
    processes = {reading.process for reading in dead if reading.process}
    ranks = {rank for reading in dead for rank in reading.signature.ranks}
    return [
        replace(reading, weight=max(reading.weight, Priority.SYMPTOM))
        if _survivable(reading) and (reading.process in processes or ranks.intersection(reading.signature.ranks))
        else reading
        for reading in readings
    ]


def _survivable(reading: FailureMatch) -> bool:
    return not reading.certain and reading.signature.kind is Kind.ERROR and reading.signature.signal is None


def _called(first: FailureMatch, others: Iterable[FailureMatch]) -> FailureMatch:
    """The answer with the call in which it was met, where a layer above that does not know the cause names it."""
    signature = first.signature
    if signature.entry_point or signature.signal or signature.kind not in _MET_IN_A_CALL:
        return first
    above = (other for other in others if other.weight in (Priority.RELAYED, Priority.UNSPECIFIC))
    entry = next((other.signature.entry_point for other in above if other.signature.entry_point), None)
    return replace(first, signature=replace(signature, entry_point=entry))


def _with_rank(reading: FailureMatch, known: Mapping[Process, int]) -> FailureMatch:
    if reading.signature.ranks or reading.process is None or reading.process not in known:
        return reading
    return replace(reading, signature=replace(reading.signature, ranks=(known[reading.process],)))


def _merged(alike: Sequence[Signature]) -> Signature:
    """Signatures of one key as the first of them, with the ranks and hosts of all."""
    if len(alike) == 1:
        return alike[0]
    ranks = {rank for signature in alike for rank in signature.ranks}
    hosts = dict.fromkeys(host for signature in alike for host in signature.hosts)
    return replace(
        alike[0],
        ranks=tuple(sorted(ranks)[:_MOST_NAMED]),
        hosts=tuple(hosts)[:_MOST_NAMED],
        entry_point=next((signature.entry_point for signature in alike if signature.entry_point), None),
    )
