"""A condition in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_hetgpu.analysis.boundary.condition import State
from pytest_hetgpu.analysis.boundary.runs import HOST, TIME, YES
from pytest_hetgpu.analysis.boundary.space import Candidate, Literal, Relation
from pytest_hetgpu.analysis.boundary.summary import NO_VALUE, Summary
from pytest_hetgpu.analysis.significance import rate_interval
from pytest_hetgpu.store.cells import format_utc

MOST_VALUES = 6


def literals_text(literals: Iterable[Candidate]) -> str:
    """Return the literals of a term as one condition, without aliases."""
    return conjunction(literal_text(one.literal) for one in literals)


def where(found: Summary) -> str:
    """Return the condition as one sentence: `transport=ucx-tcp and size <= 2K, or placement=old`."""
    aliases: dict[Literal, list[str]] = {}
    for one, alias in found.aliases:
        if alias.axis != one.axis and alias.relation not in (Relation.NOT, Relation.ONE_OF):
            aliases.setdefault(one, []).append(literal_text(alias))

    def text(one: Literal) -> str:
        same, rest = aliases.get(one), found.left_out.get(one)
        mine = f"{one.axis}=all but {listed(rest)}" if rest else literal_text(one)
        return f"{mine} (i.e. {', '.join(same)})" if same else mine

    return ", or ".join(conjunction(map(text, term)) for term in found.terms)


def state_text(found: Summary) -> str:
    """Return the state of a condition: `established by 7 further runs`."""
    more = f" by {found.further} further run{'s' * (found.further > 1)}" if found.further else ""
    if found.state == State.ESTABLISHED.value:
        return f"{found.state}{more}"
    rate = f" ({_rate(*found.rate)})" if found.state == State.FLAKY.value else ""
    return f"{found.state}{rate}{more.replace(' by', ' after')}"


def _rate(failed: int, runs: int) -> str:
    """Return how often cells fail, with the interval of 95 %: `8 of 10 runs fail, 49 to 94 %`."""
    low, high = rate_interval(failed, runs)
    return f"{failed} of {runs} runs fail, {100 * low:.0f} to {100 * high:.0f} %"


def conjunction(literals: Iterable[str]) -> str:
    """Return literals as one condition."""
    return " and ".join(literals) or "everywhere"


def literal_text(one: Literal) -> str:
    """Return a literal as a matrix writes it: `size >= 16K`, `transport=a or b`, `transport=all but ob1`."""
    if one.axis == TIME:
        when = format_utc(float(one.values[0]))
        return f"from {when} on" if one.relation is Relation.AT_LEAST else f"until {when}"
    if one.axis.startswith(HOST):
        there = (one.values[0] == YES) is not (one.relation is Relation.NOT)
        return f"{'on' if there else 'not on'} {one.axis.removeprefix(HOST)}"
    if one.relation is Relation.NOT:
        return f"{one.axis}=all but {one.values[0]}"
    if one.relation is Relation.ONE_OF:
        return f"{one.axis}={' or '.join(one.values)}"
    space = "" if one.relation is Relation.EQUAL else " "
    return f"{one.axis}{space}{one.relation.value}{space}{one.values[0]}"


def value_text(axis: str, value: str) -> str:
    """Return a value for people: a time as UTC. The start of a cell may be lost."""
    return format_utc(float(value)) if axis == TIME and value != NO_VALUE else value


def listed(values: Sequence[str]) -> str:
    """Return some values, and the number of the others."""
    more = len(values) - MOST_VALUES
    return ", ".join(values[:MOST_VALUES]) + (f" and {more} more" if more > 0 else "")
