"""Start and end of each rank of a run, as far as ranks report them; large runs keep a selection of ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from pytest_hetgpu.analysis.judges.base import FinishedRun
from pytest_hetgpu.analysis.rank_outcomes import rank_nodes
from pytest_hetgpu.model.outcome import RankOutcome, Span, Timeline

MOST = 64
"""Largest number of ranks that are all kept; above it FEW are, so that large runs stay small.

A run of 10,000 cells with 1,000 ranks each would otherwise store ten million spans.
"""
FEW = 32
_FIRST, _EXTREME = 8, 4


def timeline(run: FinishedRun, outcomes: Sequence[RankOutcome]) -> Timeline | None:
    """Return the timeline of a run with these rank outcomes (none for a good run), None if no rank reported a time.

    Many ranks are reduced to the first ones, those with an unusual status, and the last to start and to end.
    """
    evidence, started = run.evidence, run.result.started
    names = [name for name, _ in rank_nodes(run)]

    def after(at: float | None) -> float | None:
        return None if at is None else round(at - started, 3)

    greeted = {rank: hello.at for rank, hello in evidence.hellos.items()}
    spans = [Span(rank, 0, after(greeted.get(rank)), after(evidence.ended.get(rank))) for rank in range(len(names))]
    if all(one.start is None and one.end is None for one in spans):
        return None
    kept = _kept(spans, outcomes)
    rest = [one for one in spans if one.rank not in kept]
    nodes = list(dict.fromkeys(names[rank] for rank in sorted(kept)))
    return Timeline(
        spans=tuple(one._replace(node=nodes.index(names[one.rank])) for one in spans if one.rank in kept),
        nodes=tuple(nodes),
        ranks=len(spans),
        seconds=round(run.result.seconds, 3),
        limit=run.job.timeout if math.isfinite(run.job.timeout) else 0.0,
        rest=(
            min((one.start for one in rest if one.start is not None), default=None),
            max((one.end for one in rest if one.end is not None), default=None),
        ),
        last_row=after(evidence.last_row),
    )


def _kept(spans: Sequence[Span], outcomes: Sequence[RankOutcome]) -> frozenset[int]:
    """Return the ranks to keep in a timeline."""
    if len(spans) <= MOST:
        return frozenset(one.rank for one in spans)
    first = (one.rank for one in spans[:_FIRST])
    telling = chain(first, _latest(spans), (one.rank for one in outcomes if one.own), _unusual(outcomes))
    return frozenset(islice(dict.fromkeys(telling), FEW))


def _latest(spans: Sequence[Span]) -> Iterator[int]:
    """Yield the ranks that were last to start and last to end."""
    starts = sorted((one.start, one.rank) for one in spans if one.start is not None)
    ends = sorted((one.end, one.rank) for one in spans if one.end is not None)
    yield from (rank for _, rank in (*starts[-_EXTREME:], *ends[-_EXTREME:]))


def _unusual(outcomes: Sequence[RankOutcome]) -> Iterator[int]:
    """Yield the ranks whose status is not the most common one."""
    usual = Counter(one.status for one in outcomes).most_common(1)
    yield from (one.rank for one in outcomes if one.status != usual[0][0])
