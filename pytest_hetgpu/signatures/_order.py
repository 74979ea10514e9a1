"""From readings to signatures: reports of one failure joined, the root cause first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.evidence import Signature
from pytest_hetgpu.signatures.base import Process, Reading, Weight

_MOST_RANKS = 64


def ranked(readings: Iterable[Reading], ranks: Mapping[Process, int] | None = None) -> tuple[Signature, ...]:
    """Every failure once, the most telling first: by weight, then by line.

    Reports on one process are joined: of two handlers on one signal the first keeps its words and takes the other's
    frame where it has none; a second signal of one process is what its handler met, not a cause. `ranks` says which
    rank a process was.
    """
    ordered = sorted(readings, key=lambda reading: reading.signature.line)
    known = dict(ranks or {})
    known |= {r.process: r.signature.ranks[0] for r in ordered if r.process and len(r.signature.ranks) == 1}
    joined = [_with_rank(reading, known) for reading in _drop_echoes(_one_a_process(ordered))]
    joined.sort(key=lambda reading: (reading.weight, reading.signature.line))
    merged: dict[str, Signature] = {}
    for reading in joined:
        key = reading.signature.key
        merged[key] = _merge(merged[key], reading.signature) if key in merged else reading.signature
    return tuple(merged.values())


def _one_a_process(ordered: Sequence[Reading]) -> list[Reading]:
    """Handlers' reports reduced to one cause a process; all other readings as they are."""
    result: list[Reading] = []
    first: dict[Process, int] = {}
    for reading in ordered:
        if not (reading.process and _handled(reading)):
            result.append(reading)
        elif reading.process not in first:
            first[reading.process] = len(result)
            result.append(reading)
        else:
            at = first[reading.process]
            if result[at].signature.signal == reading.signature.signal:
                result[at] = replace(result[at], signature=_framed(result[at].signature, reading.signature))
            else:
                result.append(replace(reading, weight=Weight.CONSEQUENCE))
    return result


def _handled(reading: Reading) -> bool:
    return reading.weight is Weight.CAUSE and reading.signature.signal is not None


def _framed(head: Signature, other: Signature) -> Signature:
    if head.library or head.function or not (other.library or other.function):
        return replace(head, entry_point=head.entry_point or other.entry_point, detail=head.detail or other.detail)
    return replace(
        head,
        key=other.key,
        library=other.library,
        function=other.function,
        entry_point=other.entry_point,
        detail=head.detail or other.detail,
    )


def _drop_echoes(readings: Sequence[Reading]) -> list[Reading]:
    """Without the launcher's word on a signal that a handler reported in full; the rank it names is kept."""
    reported = Counter(r.signature.signal for r in readings if _handled(r))
    echoes: dict[str | None, set[int]] = {}
    kept = []
    for reading in readings:
        if reading.weight is Weight.ENDING and reading.signature.signal in reported:
            echoes.setdefault(reading.signature.signal, set()).update(reading.signature.ranks)
        else:
            kept.append(reading)
    return [_with_echo(r, reported, echoes) if _handled(r) else r for r in kept]


def _with_echo(reading: Reading, reported: Mapping[str | None, int], echoes: Mapping[str | None, set[int]]) -> Reading:
    """A crash with the launcher's rank, where only one process and only one rank died of that signal."""
    signature = reading.signature
    named = echoes.get(signature.signal, set())
    if signature.ranks or reported[signature.signal] != 1 or len(named) != 1:
        return reading
    return replace(reading, signature=replace(signature, ranks=tuple(named)))


def _with_rank(reading: Reading, known: Mapping[Process, int]) -> Reading:
    if reading.signature.ranks or reading.process is None or reading.process not in known:
        return reading
    return replace(reading, signature=replace(reading.signature, ranks=(known[reading.process],)))


def _merge(first: Signature, again: Signature) -> Signature:
    return replace(
        first,
        ranks=tuple(sorted({*first.ranks, *again.ranks})[:_MOST_RANKS]),
        hosts=tuple(dict.fromkeys((*first.hosts, *again.hosts)))[:_MOST_RANKS],
        entry_point=first.entry_point or again.entry_point,
    )
