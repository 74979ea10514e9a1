"""A condition of a failure in words, for a terminal, a summary and an issue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_hetgpu.analysis.boundary.space import Literal, Relation
from pytest_hetgpu.analysis.boundary.summary import NOT_RUN, PASSES, Required, Summary

_MOST_VALUES = 6
_REFUTED = "a matching cell that passes, or another that fails this way"


def boundary_lines(found: Summary) -> Iterator[tuple[str, str]]:
    """Yield the facts about a condition as names and texts; the first is the key with its state."""
    yield found.key or "any failure", found.state
    yield "where", where(found)
    yield "support", support(found)
    if required := "; ".join(_required(found)):
        yield "required", required
    if found.no_effect:
        yield "no effect", "; ".join(f"{axis} ({_listed(values)})" for axis, values in found.no_effect)
    yield "refuted by", _REFUTED


def where(found: Summary) -> str:
    """Return the condition as one sentence: `transport=ucx-tcp and size <= 2K, or placement=old`."""
    aliases: dict[Literal, list[str]] = {}
    for one, alias in found.aliases:
        if alias.axis != one.axis:
            aliases.setdefault(one, []).append(literal_text(alias))

    def text(one: Literal) -> str:
        same, rest = aliases.get(one), found.left_out.get(one)
        mine = f"{one.axis}=all but {_listed(rest)}" if rest else literal_text(one)
        return f"{mine} (i.e. {', '.join(same)})" if same else mine

    return ", or ".join(" and ".join(map(text, term)) or "everywhere" for term in found.terms)


def literal_text(one: Literal) -> str:
    """Return a literal as a matrix writes it: `size >= 16K`, `transport=a or b`, `transport=all but ob1`."""
    if one.relation is Relation.NOT:
        return f"{one.axis}=all but {one.values[0]}"
    if one.relation is Relation.ONE_OF:
        return f"{one.axis}={' or '.join(one.values)}"
    space = "" if one.relation is Relation.EQUAL else " "
    return f"{one.axis}{space}{one.relation.value}{space}{one.values[0]}"


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
    values = list(dict.fromkeys(value for one in several for value in one.values))
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
    if len(values) <= _MOST_VALUES // 2:
        return _listed(values)
    return f"the {len(values)} others" if alone else f"{len(values)} others"


def _listed(values: Sequence[str]) -> str:
    more = len(values) - _MOST_VALUES
    return ", ".join(values[:_MOST_VALUES]) + (f" and {more} more" if more > 0 else "")
