"""Changes at the end of a run: from the expectations of its matrix, and from the run before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone

from pytest_hetgpu.analysis.compare.cells import CellChange, TypicalOutcome, changes
from pytest_hetgpu.analysis.compare.sides import ChangeKind, Identity, Side
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.store.properties import CellProperties
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary
from pytest_hetgpu.store.text import one_line

Line = tuple[str, dict[str, bool]]
MOST_LINES, MOST_CELLS = 12, 4
_RED, _GREEN, _PLAIN = {"red": True}, {"green": True}, dict[str, bool]()
_NEW = (Verdict.NEW, Verdict.CHANGED, Verdict.FIXED)
_TOLD = (ChangeKind.WORSE, ChangeKind.CHANGED, ChangeKind.BETTER)


def _foretold(pairs: CellProperties) -> str:
    """Return the warning of preflight that was certain of a cell's outcome, "" if none was."""
    return next((one for one in pairs.preflight.split(" | ") if f" ({pairs.kind.value}); " in one), "")


def unexpected(seen: Iterable[CellProperties]) -> Iterator[Line]:
    """Yield unexpected outcomes, with equal failures in one line: `new: SIGSEGV@libuct.so!... (3 cells: a, b, c)`."""
    found: dict[tuple[Verdict, str], list[str]] = {}
    for pairs in seen:
        if pairs.verdict in _NEW:
            said = pairs.signature or pairs.kind.value.replace("_", " ")
            said = f"{said}: {pairs.why}" if pairs.verdict is not Verdict.NEW and pairs.why else said
            said = f"{said}; preflight: {foretold}" if (foretold := _foretold(pairs)) else said
            found.setdefault((pairs.verdict, one_line(said, 300)), []).append(pairs.scenario)
    ordered = sorted(found.items(), key=lambda one: _NEW.index(one[0][0]))
    for (verdict, said), cells in ordered[:MOST_LINES]:
        yield f"{verdict.value}: {said} ({_cells(cells)})", _RED
    if len(ordered) > MOST_LINES:
        yield f"and {len(ordered) - MOST_LINES} more that are not as expected", _RED


def since(before: Side, cells: Mapping[Identity, CellSummary], labels: Mapping[Identity, str]) -> Iterator[Line]:
    """Yield changes since a run, with equal ones in one line. Cells that this run did not include are left out."""
    now = RunSummary("", "", 0.0, "", "", (), tuple(cells.values()))
    changed = [one for one in changes(before, Side("now", (now,))) if (one.matrix, one.scenario) in cells]
    found: dict[tuple[ChangeKind, str], list[str]] = {}
    for one in changed:
        if one.kind in _TOLD and one.before and one.after:
            key = (one.kind, f"was {_words(one.before)}, is {_words(one.after)}")
            found.setdefault(key, []).append(labels.get((one.matrix, one.scenario), one.scenario))
    name = _named(before)
    if not found:
        yield f"since {name}: {_no_change(changed)}", _PLAIN
        return
    yield f"since {name}:", _PLAIN
    ordered = sorted(found.items(), key=lambda one: _TOLD.index(one[0][0]))
    for (way, said), names in ordered[:MOST_LINES]:
        markup = {ChangeKind.WORSE: _RED, ChangeKind.BETTER: _GREEN}.get(way, _PLAIN)
        yield f"  {way.value}: {said} ({_cells(names)})", markup
    if len(ordered) > MOST_LINES:
        yield f"  and {len(ordered) - MOST_LINES} more; `hetgpu compare` has them all", _PLAIN


def _no_change(changed: Sequence[CellChange]) -> str:
    same = sum(one.kind is ChangeKind.SAME for one in changed)
    added = sum(one.before is None for one in changed)
    said = f"{same} cell{'s are' if same != 1 else ' is'} as {'they were' if same != 1 else 'it was'}"
    return f"{said}, {added} {'were' if added != 1 else 'was'} not in it" if added else said


def _named(side: Side) -> str:
    newest = side.runs[0] if side.runs else None
    if newest is None or len(side.runs) > 1:
        return f"{side.name} ({len(side.runs)} runs)"
    try:
        return f"{newest.id} ({datetime.fromtimestamp(newest.started, timezone.utc):%Y-%m-%d %H:%M} UTC)"
    except (OverflowError, ValueError, OSError):
        return newest.id


def _words(state: TypicalOutcome) -> str:
    said = state.kind.value.replace("_", " ")
    if not state.ran:
        return f"not run ({one_line(state.why, 80)})" if state.why else "not run"
    expected = ", as expected" if state.verdict is Verdict.KNOWN else ""
    return f"{said} {one_line(state.signature, 120)}".rstrip() + expected


def _cells(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_CELLS])
    more = f" and {len(names) - MOST_CELLS} more" if len(names) > MOST_CELLS else ""
    return f"{len(names)} cells: {shown}{more}" if len(names) > 1 else shown
