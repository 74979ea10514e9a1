"""A comparison as text for people, and as JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from pytest_hetgpu.analysis.compare.boundaries import BoundaryMove
from pytest_hetgpu.analysis.compare.cells import CellChange, KeyChange, TypicalOutcome
from pytest_hetgpu.analysis.compare.comparison import Comparison
from pytest_hetgpu.analysis.compare.numbers import NumberChange
from pytest_hetgpu.analysis.compare.sides import ChangeKind, Identity, Side
from pytest_hetgpu.model.sample import Sample
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.store.cells import format_utc
from pytest_hetgpu.store.text import clean, printable_json

SCHEMA = 1
MOST = 100
"""Longest section in lines; `--json` omits nothing."""
LONGEST = 1000
_CELLS = 8
_TITLES = {
    ChangeKind.WORSE: "worse",
    ChangeKind.BETTER: "better",
    ChangeKind.CHANGED: "changed, neither worse nor better",
    ChangeKind.APPEARED: "appeared",
    ChangeKind.VANISHED: "vanished",
    ChangeKind.UNLIKE: "not compared",
}


def as_text(comparison: Comparison) -> Iterator[str]:
    """Yield the lines for a terminal: without control characters, and none too long."""
    for line in _lines(comparison):
        text = clean(line).replace("\n", " ").replace("\t", " ")
        yield text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _lines(comparison: Comparison) -> Iterator[str]:
    yield f"before  {_side(comparison.before)}"
    yield f"after   {_side(comparison.after)}"
    yield from (f"note    {note}" for note in comparison.notes)
    several = len(comparison.before.matrices.keys() | comparison.after.matrices.keys()) > 1
    for kind, title in _TITLES.items():
        rows = list(_section(comparison, kind, _name(several=several)))
        if rows:
            yield from ("", f"{title}:", *rows[:MOST])
            if len(rows) > MOST:
                yield f"  and {len(rows) - MOST} more lines (--json has all)"
    signatures = [_key(key, _name(several=several)) for key in comparison.keys]
    if signatures:
        yield from ("", "signatures:", *signatures[:MOST])
    moves = [f"  {_of(one, several=several)}: from {one.before} to {one.after}" for one in comparison.boundaries]
    if moves:
        yield from ("", "the boundary moved:", *moves[:MOST])
    yield from ("", _sum(comparison))


def _side(side: Side) -> str:
    runs = side.runs
    matrices = ", ".join(sorted(side.matrices))
    if len(runs) == 1:
        run = runs[0]
        when = f", {format_utc(run.started)}" if run.started else ""
        return f"{side.name}{f' ({run.id})' if run.id not in side.name else ''}{when}: {matrices}"
    first, last = (format_utc(run.started) for run in (runs[-1], runs[0]))
    return f"{side.name}, {len(runs)} runs from {first} to {last}: {matrices}"


def _of(move: BoundaryMove, *, several: bool) -> str:
    return f"{move.matrix}.{move.key}" if several else move.key


def _name(*, several: bool) -> Callable[[Identity], str]:
    return lambda identity: ".".join(identity) if several else identity[1]


def _section(comparison: Comparison, kind: ChangeKind, name: Callable[[Identity], str]) -> Iterator[str]:
    for cell in comparison.cells:
        if cell.kind is kind:
            yield f"  {name((cell.matrix, cell.scenario))}: {_cell(cell)}"
    numbers = [one for one in comparison.numbers if one.kind is kind]
    for identity, of_cell in groupby(numbers, key=lambda one: (one.matrix, one.scenario)):
        if kind is ChangeKind.APPEARED:
            count = len(list(of_cell))
            yield f"  {name(identity)}: {count} number{'s' * (count > 1)}"
            continue
        yield f"  {name(identity)}:"
        yield from _points(list(of_cell))


def _cell(cell: CellChange) -> str:
    if cell.before and cell.after:
        return f"{_state(cell.before)} -> {_state(cell.after)}"
    if cell.after:
        return f"not there before, {_state(cell.after)}"
    return f"was {_state(cell.before)}, is not there any more" if cell.before else ""


def _state(state: TypicalOutcome) -> str:
    often = f", {state.times} of {state.runs} runs" if state.runs > 1 else ""
    if not state.ran:
        return f"not run ({state.why}{often})" if state.why or often else "not run"
    if state.works:
        return f"{state.kind.value}{f' ({state.verdict.value})' if state.verdict.fails else ''}{often}"
    return f"{state.kind.value.replace('_', ' ')} {state.signature or state.why} ({state.verdict.value}{often})"


def _points(numbers: Sequence[NumberChange]) -> Iterator[str]:
    """Yield one line per point; `algbw` only without `busbw`, which gives the same information."""
    points: dict[tuple[int, str, str], list[NumberChange]] = {}
    for one in numbers:
        points.setdefault((one.point.size, one.point.dtype, one.point.place), []).append(one)
    for (size, dtype, place), found in points.items():
        metrics = {one.metric for one in found}
        told = sorted((one for one in found if one.metric != "algbw" or "busbw" not in metrics), key=_metric)
        where = " ".join(filter(None, (show_size(size), dtype, "in place" if place else ""))) if size else ""
        yield f"    {f'{where}  ' if where else ''}{', '.join(map(_number, told))}"


def _metric(one: NumberChange) -> str:
    return one.metric


def _number(one: NumberChange) -> str:
    unit = f" {one.unit}" if one.unit else ""
    if one.kind is ChangeKind.UNLIKE:
        return f"{one.metric}: {one.why}"
    before, after = (_sample(found) for found in (one.before, one.after))
    if one.before is None or one.after is None:
        return f"{one.metric} {before or after}{unit}, {'then ' if one.before else ''}{one.why}"
    return f"{one.metric} {before} -> {after}{unit} ({percent(one.change)})"


def _sample(found: Sample | None) -> str:
    """Format a sample: `1.25`, of several runs `1.25 [1.2 to 1.3 in 9 runs, 1 outlier]`.

    Repeats appear only if they differ.
    """
    if found is None:
        return ""
    if found.values + found.outliers == 1 or (found.of == "repeat" and found.low == found.high):
        return f"{found.middle:.4g}"
    outliers = f", {found.outliers} outlier{'s' * (found.outliers > 1)}" if found.outliers else ""
    spread = f"{found.low:.4g} to {found.high:.4g} in " if found.low < found.high else ""
    return f"{found.middle:.4g} [{spread}{found.values} {found.of}{'s' * (found.values > 1)}{outliers}]"


def percent(change: float | None) -> str:
    """Format a relative change: `-20.0 %`; a change from nothing has no percentage."""
    if change is None or not math.isfinite(change):
        return "from nothing"
    return f"{change * 100:+.1f} %" if abs(change) < 100 else f"{change + 1:.3g} x"


def _key(key: KeyChange, name: Callable[[Identity], str]) -> str:
    if key.what == "moved":
        came, went = (
            _some(set(one) - set(other), name) for one, other in ((key.after, key.before), (key.before, key.after))
        )
        moves = ", ".join(filter(None, (came and f"now in {came}", went and f"no longer in {went}")))
        return f"  moved {key.key}: {moves}"
    return f"  {key.what:5} {key.key}: {_some(key.after or key.before, name)}"


def _some(identities: Iterable[Identity], name: Callable[[Identity], str]) -> str:
    names = sorted(map(name, identities))
    return ", ".join(names[:_CELLS]) + (f" and {len(names) - _CELLS} more" if len(names) > _CELLS else "")


def _sum(comparison: Comparison) -> str:
    shared = [one for one in comparison.cells if one.before and one.after]
    held = [one for one in comparison.numbers if one.before and one.after and one.kind is not ChangeKind.UNLIKE]
    verdict = "something is worse" if comparison.worse else "nothing is worse"
    same = [sum(one.kind is ChangeKind.SAME for one in found) for found in (shared, held)]
    return (
        f"{verdict}: of {len(shared)} cells in common {same[0]} are as they were; "
        f"of {len(held)} numbers {same[1]} are within {comparison.tolerance * 100:g} %"
    )


def as_json(comparison: Comparison) -> str:
    """Return one JSON object; unchanged items are only counted."""
    data = {
        "schema": SCHEMA,
        "worse": comparison.worse,
        "tolerance": comparison.tolerance * 100,
        "before": _side_data(comparison.before),
        "after": _side_data(comparison.after),
        "notes": list(comparison.notes),
        "cells": [_cell_data(one) for one in comparison.cells if one.kind is not ChangeKind.SAME],
        "signatures": [_key_data(key) for key in comparison.keys],
        "boundaries": [
            {"matrix": one.matrix, "key": one.key, "before": one.before, "after": one.after}
            for one in comparison.boundaries
        ],
        "numbers": [_number_data(one) for one in comparison.numbers if one.kind is not ChangeKind.SAME],
        "same": {
            "cells": sum(one.kind is ChangeKind.SAME for one in comparison.cells),
            "numbers": sum(one.kind is ChangeKind.SAME for one in comparison.numbers),
        },
    }
    return printable_json(json.dumps(data, indent=1, allow_nan=False))


def _side_data(side: Side) -> dict[str, Any]:
    runs = [
        {"id": run.id, "folder": run.folder, "started": run.started, "machine": run.machine, "package": run.package}
        for run in side.runs
    ]
    return {"name": side.name, "matrices": sorted(side.matrices), "runs": runs}


def _cell_data(one: CellChange) -> dict[str, Any]:
    before, after = (_state_data(state) for state in (one.before, one.after))
    return {"matrix": one.matrix, "cell": one.scenario, "way": one.kind.value, "before": before, "after": after}


def _state_data(state: TypicalOutcome | None) -> dict[str, Any] | None:
    if state is None:
        return None
    known = {"outcome": state.kind.value, "verdict": state.verdict.value, "signature": state.signature}
    return {**known, "why": state.why, "times": state.times, "runs": state.runs}


def _key_data(key: KeyChange) -> dict[str, Any]:
    before, after = ([{"matrix": matrix, "cell": cell} for matrix, cell in found] for found in (key.before, key.after))
    return {"key": key.key, "what": key.what, "before": before, "after": after}


def _number_data(one: NumberChange) -> dict[str, Any]:
    point = {"size": one.point.size, "dtype": one.point.dtype, "place": one.point.place}
    change = math.nan if one.change is None else one.change * 100
    return {
        "matrix": one.matrix,
        "cell": one.scenario,
        "way": one.kind.value,
        "metric": one.metric,
        "unit": one.unit,
        **point,
        "before": _sample_data(one.before),
        "after": _sample_data(one.after),
        "percent": change if math.isfinite(change) else None,
        "why": one.why,
    }


def _sample_data(found: Sample | None) -> dict[str, Any] | None:
    if found is None:
        return None
    spread = {"median": found.middle, "low": found.low, "high": found.high}
    return {**spread, "values": found.values, "outliers": found.outliers, "of": found.of}
