"""The timeline of a cell for the page: one row per rank, and notes on clocks that are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pytest_hetgpu.model.outcome import Outcome, Timeline
from pytest_hetgpu.store.text import one_line

LARGEST_CLOCK_ERROR = 0.5
"""Seconds; a rank that starts earlier before its job, or ends later after it, shows a wrong clock."""
_FINISHED = "finished"
_GROUPS = (("finished", "finished"), ("never started", "never started"), ("was stuck", "stuck"))


def timeline_data(outcome: Outcome) -> dict[str, Any]:
    """Return the timeline of a cell; {} if none is known.

    `rows` are `[rank, node, start, end, fate, group]`, in seconds after the start of the job. `rest` is `[number of
    other ranks, earliest start, latest end]`.
    """
    line = outcome.timeline
    if line is None:
        return {}
    fates = {one.rank: one for one in outcome.rank_outcomes}
    rows = []
    for one in line.spans:
        fate = fates.get(one.rank)
        name = line.nodes[one.node] if 0 <= one.node < len(line.nodes) else ""
        status = fate.status if fate else _FINISHED
        group = _group(status, own=bool(fate and fate.own))
        rows.append([one.rank, one_line(name), one.start, one.end, one_line(status), group])
    others = line.ranks - len(rows)
    found = {
        "seconds": line.seconds,
        "limit": line.limit,
        "row": line.last_row,
        "rows": rows,
        "rest": [others, *line.rest] if others > 0 else [],
        "notes": [one_line(note) for note in _clock_notes(line)],
    }
    return {name: value for name, value in found.items() if value not in (0.0, [], None)}


def _group(fate: str, *, own: bool) -> str:
    """Return the colour group of a rank's outcome."""
    known = next((group for start, group in _GROUPS if fate.startswith(start)), None)
    return known or ("failed" if own else "stopped")


def _clock_notes(line: Timeline) -> Iterator[str]:
    """Yield a sentence on each node whose ranks started before their job or ended after it."""
    for place, node in enumerate(line.nodes):
        mine = [one for one in line.spans if one.node == place]
        early = _largest_error(-one.start for one in mine if one.start is not None)
        if early:
            yield f"A rank of {node} reports a start {early:.1f} s before the job's: the clock of {node} is behind"
        late = _largest_error(max(one.start or 0.0, one.end or 0.0) - line.seconds for one in mine)
        if late:
            yield f"A rank of {node} reports a time {late:.1f} s after the job's end: the clock of {node} is ahead"


def _largest_error(off: Iterable[float]) -> float | None:
    worst = max(off, default=0.0)
    return worst if worst > LARGEST_CLOCK_ERROR else None
