"""A condition of a failure in words, for a terminal, a summary and an issue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_hetgpu.analysis.boundary.summary import NOT_RUN, PASSES, Required, Summary
from pytest_hetgpu.analysis.boundary.words import (
    MOST_VALUES,
    conjunction,
    listed,
    literal_text,
    state_text,
    value_text,
    where,
)

_REFUTED = "a matching cell that passes, or another that fails this way"


def boundary_lines(found: Summary) -> Iterator[tuple[str, str]]:
    """Yield the facts about a condition as names and texts; the first is the key with its state."""
    yield found.key or "any failure", state_text(found)
    yield "where", where(found)
    yield "support", support(found)
    if required := "; ".join(_required(found)):
        yield "required", required
    if found.no_effect:
        yield "no effect", "; ".join(f"{axis} ({listed(values)})" for axis, values in found.no_effect)
    if found.rivals:
        yield "rivals", "; ".join(conjunction(map(literal_text, rival)) for rival in found.rivals)
    if found.untried:
        yield "not tried", " ".join(f"{axis}={value}" for axis, value in found.untried.items())
    yield "refuted by", _REFUTED
    if found.cure:
        yield "cure", found.cure
    if found.smallest:
        yield "smallest", found.smallest


def support(found: Summary) -> str:
    """Return the numbers of cells that fail inside and beyond a condition."""
    one = found.support
    ran = "all were run" if one.run == one.matching else f"{one.run} were run"
    others = f"{one.failing_beyond} of {one.beyond} others"
    if one.matching == one.failing == 1:
        return f"the matching cell fails this way, {others}"
    fail = f"all {one.failing}" if one.failing == one.matching else f"{one.failing} of {one.matching}"
    return f"{fail} matching cells fail this way ({ran}), {others}"


def _required(found: Summary) -> Iterator[str]:
    """Yield the ends of the other values of each axis: those that pass, that fail otherwise, and that were not run."""
    axes: dict[str, dict[str, list[Required]]] = {}
    for one in found.required:
        axes.setdefault(one.axis, {}).setdefault(_shown(one.shown), []).append(one)
    for axis, shown in axes.items():
        parts = [_part(several, words, alone=len(shown) == 1) for words, several in shown.items()]
        yield f"{axis}: {', '.join(parts)}"


def _part(several: Sequence[Required], words: str, *, alone: bool) -> str:
    values = list(dict.fromkeys(value_text(one.axis, value) for one in several for value in one.values))
    keys = dict.fromkeys(key for one in several for key in one.shown if key not in (PASSES, NOT_RUN))
    named = f" ({next(iter(keys))})" if len(keys) == 1 else ""
    verb = words.format(s="s", es="es") if len(values) == 1 else words.format(s="", es="")
    return f"{_others(values, alone=alone)} {verb}{named}"


def _shown(shown: Sequence[str]) -> str:
    if shown == (NOT_RUN,):
        return "not run"
    if shown == (PASSES,):
        return "pass{es}"
    return "pass{es} or fail{s} otherwise" if PASSES in shown else "fail{s} otherwise"


def _others(values: Sequence[str], *, alone: bool) -> str:
    """Return the values, or their number if they are many."""
    if len(values) <= MOST_VALUES // 2:
        return listed(values)
    return f"the {len(values)} others" if alone else f"{len(values)} others"
