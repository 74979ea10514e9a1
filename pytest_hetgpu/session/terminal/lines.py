"""Lines about cells for the terminal, from the properties of their reports. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pytest_hetgpu.execution.retry.quarantine import IN_QUARANTINE
from pytest_hetgpu.model.bandwidth_text import percent
from pytest_hetgpu.model.metrics import link_fraction
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.model.quantities import describe, headline
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.store.properties import CellProperties

MARKUP = {
    Verdict.OK: {"green": True},
    Verdict.KNOWN: {"yellow": True},
    Verdict.NEW: {"red": True},
    Verdict.CHANGED: {"red": True},
    Verdict.FIXED: {"red": True},
    Verdict.NOT_RUN: {"cyan": True},
}


MAX_LINES = 8
LEAST_SHARE = 0.001
_UNRUN = re.compile(rf"{IN_QUARANTINE}|the run's time was spent")


def verdict(pairs: CellProperties) -> str:
    """Return the first word of a cell's line."""
    return "flaky" if pairs.flaky and pairs.verdict is Verdict.OK else pairs.verdict.value.replace("_", " ")


def markup(pairs: CellProperties) -> Mapping[str, bool]:
    """Return the colour of that line."""
    return {"yellow": True} if verdict(pairs) == "flaky" else MARKUP[pairs.verdict]


def flaky(seen: Iterable[CellProperties]) -> Iterator[str]:
    """Yield the cells that failed and then passed."""
    found = [f"{pairs.scenario} {pairs.flaky}" for pairs in seen if pairs.flaky]
    yield from (f"flaky: {one}" for one in found[:MAX_LINES])
    if len(found) > MAX_LINES:
        yield f"flaky: {len(found) - MAX_LINES} more, see summary.md"


def not_run(seen: Iterable[CellProperties]) -> Iterator[str]:
    """Yield cells that were not run because of a quarantine, or because the time of the run was over."""
    why = Counter(pairs.why for pairs in seen if pairs.verdict is Verdict.NOT_RUN and _UNRUN.search(pairs.why))
    yield from (f"{one} [{cells} cell{'s' * (cells > 1)} not run]" for one, cells in why.most_common(MAX_LINES))


def warnings(seen: Iterable[CellProperties]) -> Iterator[str]:
    """Yield each warning of preflight once, with its number of cells."""
    return _counted("preflight", "preflight", (pairs.preflight for pairs in seen))


def notes(seen: Iterable[CellProperties]) -> Iterator[str]:
    """Yield each note about cells once, with its number of cells."""
    return _counted("note", "notes", (pairs.notes for pairs in seen))


def _counted(word: str, name: str, details: Iterable[str]) -> Iterator[str]:
    found = Counter(one for text in details for one in text.split(" | ") if one)
    for one, cells in found.most_common(MAX_LINES):
        yield f"{word}: {one} [{cells} cell{'s' * (cells > 1)}]"
    if len(found) > MAX_LINES:
        yield f"{word}: {len(found) - MAX_LINES} more, as the property `{name}` of their cells"


def details(pairs: CellProperties) -> str:
    """Return seconds, then bandwidth or signature or reason."""
    if pairs.verdict is Verdict.NOT_RUN:
        return pairs.why
    detail = ", ".join(filter(None, (pairs.tests, best(pairs)))) if pairs.kind.value == "passed" else ""
    if pairs.flaky:
        detail = f"{pairs.flaky}; {detail}".removesuffix("; ")
    if pairs.kind.value != "passed":
        detail = f"{pairs.kind.value}: {pairs.signature or pairs.why}"
    elif pairs.verdict.fails:
        detail = pairs.why
    return f"{pairs.seconds:6.1f} s  {detail}".rstrip()


def best(pairs: CellProperties) -> str:
    """Return the cell's first number, a rate at its best, and the first one with the other direction."""
    parts: list[str] = []
    for one in headline(pairs.numbers):
        fraction = link_fraction(one, LinkBandwidth(pairs.link)) or 0.0
        # The share is left out if there are only small messages.
        share = f" ({percent(fraction)} of the wire)" if fraction >= LEAST_SHARE else ""
        parts.append(f"{describe(one, typed=not parts)}{share}")
    return ", ".join(parts)
