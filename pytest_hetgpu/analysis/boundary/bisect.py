"""Changes of the outcome along ordered values: each one between values that end differently. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

OK = ""
"""The outcome of a value that works; others are keys of failures."""


def bisected(count: int, outcome: Callable[[int], str | None]) -> Mapping[int, str]:
    """Return the outcomes of some of the values 0 to `count` - 1: the ends, and both sides of each change between them.

    `outcome` runs a value. None shows nothing; then a value beside it is run.
    """
    known: dict[int, str] = {}
    silent: set[int] = set()
    while (place := next_value(count, known, silent)) is not None:
        found = outcome(place)
        if found is None:
            silent.add(place)
        else:
            known[place] = found
    return dict(sorted(known.items()))


def next_value(count: int, known: Mapping[int, str], silent: Collection[int]) -> int | None:
    """Return the next value to run: an end, or the middle between two that end differently; None if all is known."""
    usable = [place for place in range(count) if place not in silent]
    for end in (*usable[:1], *usable[-1:]):
        if end not in known:
            return end
    gaps = [
        (high - low, inside)
        for low, high in pairwise(sorted(known))
        if known[low] != known[high] and (inside := [place for place in usable if low < place < high])
    ]
    if not gaps:
        return None
    _, inside = max(gaps, key=lambda gap: gap[0])
    return inside[len(inside) // 2]


def changes_text(values: Sequence[str], known: Mapping[int, str]) -> str:
    """Return where the outcome changes: `ok to 2K, SIGSEGV@lib from 4K (5 runs)`."""
    runs = f"({len(known)} run{'s' * (len(known) != 1)})"
    groups: list[tuple[str, str, str]] = []
    for place, outcome in known.items():
        if groups and groups[-1][0] == outcome:
            groups[-1] = (outcome, groups[-1][1], values[place])
        else:
            groups.append((outcome, values[place], values[place]))
    if not groups:
        return f"nothing is known {runs}"
    if len(groups) == 1:
        return f"{_named(groups[0][0])} from {groups[0][1]} to {groups[0][2]} {runs}"
    parts = [f"{_named(groups[0][0])} to {groups[0][2]}"]
    parts += [
        f"{_named(outcome)} from {first}" + (f" to {last}" if last != first else "")
        for outcome, first, last in groups[1:-1]
    ]
    parts.append(f"{_named(groups[-1][0])} from {groups[-1][1]}")
    return f"{', '.join(parts)} {runs}"


def _named(outcome: str) -> str:
    return outcome or "ok"
