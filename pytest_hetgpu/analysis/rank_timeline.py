"""When each rank of a run was there, as far as the ranks said so: of a few all, of many those that tell most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from pytest_hetgpu.analysis.judges.base import Case
from pytest_hetgpu.analysis.rank_outcomes import places
from pytest_hetgpu.model.outcome import RankOutcome, Span, Timeline

MOST = 64
"""Of more ranks than this FEW are kept: a run of 10,000 cells of 1,000 ranks shall not keep ten million of them."""
FEW = 32
_FIRST, _EXTREME = 8, 4


def timeline(case: Case, fates: Sequence[RankOutcome]) -> Timeline | None:
    """The timeline of a run whose ranks ended as `fates` say, or well where there are none; None if nothing is known.

    Of many ranks the first are kept, those that fared otherwise than most, and the latest to start and to end.
    """
    evidence, started = case.evidence, case.result.started
    names = [name for name, _ in places(case)]

    def after(at: float | None) -> float | None:
        return None if at is None else round(at - started, 3)

    greeted = {rank: hello.at for rank, hello in evidence.hellos.items()}
    spans = [Span(rank, 0, after(greeted.get(rank)), after(evidence.ended.get(rank))) for rank in range(len(names))]
    if all(one.start is None and one.end is None for one in spans):
        return None
    kept = _kept(spans, fates)
    rest = [one for one in spans if one.rank not in kept]
    nodes = list(dict.fromkeys(names[rank] for rank in sorted(kept)))
    return Timeline(
        spans=tuple(one._replace(node=nodes.index(names[one.rank])) for one in spans if one.rank in kept),
        nodes=tuple(nodes),
        ranks=len(spans),
        seconds=round(case.result.seconds, 3),
        limit=case.job.timeout if math.isfinite(case.job.timeout) else 0.0,
        rest=(
            min((one.start for one in rest if one.start is not None), default=None),
            max((one.end for one in rest if one.end is not None), default=None),
        ),
        last_row=after(evidence.last_row),
    )


def _kept(spans: Sequence[Span], fates: Sequence[RankOutcome]) -> frozenset[int]:
    """The ranks that a timeline keeps."""
    if len(spans) <= MOST:
        return frozenset(one.rank for one in spans)
    first = (one.rank for one in spans[:_FIRST])
    telling = chain(first, _latest(spans), (one.rank for one in fates if one.own), _unusual(fates))
    return frozenset(islice(dict.fromkeys(telling), FEW))


def _latest(spans: Sequence[Span]) -> Iterator[int]:
    """Those that started, and those that ended, when most others had."""
    starts = sorted((one.start, one.rank) for one in spans if one.start is not None)
    ends = sorted((one.end, one.rank) for one in spans if one.end is not None)
    yield from (rank for _, rank in (*starts[-_EXTREME:], *ends[-_EXTREME:]))


def _unusual(fates: Sequence[RankOutcome]) -> Iterator[int]:
    """Those that did not fare as most did."""
    usual = Counter(one.fate for one in fates).most_common(1)
    yield from (one.rank for one in fates if one.fate != usual[0][0])
