"""The data of the page of nights as JSON: all of it is cleaned, cut and redacted here."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_hetgpu.analysis.cell_history import WIRE, CellHistory, cell_history
from pytest_hetgpu.analysis.nights.failures import (
    FailureHistory,
    failure_histories,
    hosts_of,
    hosts_with_own_failures,
)
from pytest_hetgpu.analysis.nights.speeds import SpeedHistory
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting.history_lines import cell_lines, cell_names
from pytest_hetgpu.reporting.speed_lines import describe_quantity, speed_line
from pytest_hetgpu.store.past_runs import PastCell, PastOutcome, PastRun, PastRuns
from pytest_hetgpu.store.redaction.redact import redact_json
from pytest_hetgpu.store.text import one_line

LONGEST_TEXT = 300
LONGEST_LABEL = 1000
"""Characters of the label of a cell in the address of its page."""
_MOST_CHANGES = 30
_DIGITS = 4


def nights_data(past: PastRuns, speeds: Sequence[SpeedHistory], lacks: str, beside: Path) -> dict[str, Any]:
    """Convert runs to the data of their page; `numbers` are its measurements, which the page unpacks for charts.

    Args:
        past: the runs and the outcomes of their cells.
        speeds: the speeds of cells.
        lacks: why steps of speeds were not looked for; "" if they were.
        beside: the folder of the page, from which it links to the pages of runs that are kept.

    """
    name = cell_names(past)
    shared, failures = _PageValues(), failure_histories(past)
    ids = _unique(one_line(name(cell), LONGEST_TEXT) for cell in past.cells)
    places = {cell: place for place, cell in enumerate(past.cells)}
    of_cell: dict[PastCell, list[SpeedHistory]] = {}
    for one in speeds:
        of_cell.setdefault(one.cell, []).append(one)
    return {
        "matrices": [[one_line(matrix), ""] for matrix in dict.fromkeys(cell.matrix for cell in past.cells)],
        "lacks": one_line(lacks),
        "runs": _runs(past, shared.settings, beside),
        "cells": [
            {"id": own} | _cell(past, cell, shared, of_cell.get(cell, ()))
            for own, cell in zip(ids, past.cells, strict=True)
        ],
        "settings": shared.settings.data,
        "outcomes": shared.outcomes.data,
        "failures": [_failure(one, places) for one in failures],
        "hosts": _hosts(past, failures),
        "numbers": {"speeds": shared.speeds, "wires": shared.wires.data},
    }


class _Shared:
    """Values that the page has once, and names by their number."""

    def __init__(self) -> None:
        self.data: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: object) -> int:
        """Return the number of a value, which is added if it is new."""
        number = self._numbers.setdefault(json.dumps(value), len(self.data))
        if number == len(self.data):
            self.data.append(value)
        return number


class _Outcomes(_Shared):
    """Outcomes of cells. Those of a history are the same object in all runs with the same outcome."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[int, PastOutcome]] = {}

    def of(self, one: PastOutcome | None) -> int | None:
        """Return the number of an outcome without the measured bandwidth, None for none."""
        if one is None:
            return None
        if id(one) not in self._known:
            facts = {fact: text for fact, text in one.facts.items() if fact != WIRE}
            outcome = {
                "verdict": one.verdict.value,
                "name": one_line(one.name, LONGEST_TEXT),
                "facts": _texts(facts),
                "nodes": _texts(one.nodes),
            }
            self._known[id(one)] = (self.number(outcome), one)
        return self._known[id(one)][0]


class _PageValues:
    """The values that runs and cells share."""

    def __init__(self) -> None:
        self.outcomes = _Outcomes()
        self.settings = _Shared()
        self.wires = _Shared()
        self.speeds: list[list[float | None]] = []


def _unique(names: Iterable[str]) -> list[str]:
    """Return names for the address of the page: those that are equal once they are cut get a number."""
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        found[next(one for one in itertools.chain((name,), numbered) if one not in found)] = None
    return list(found)


def _texts(facts: Mapping[str, str]) -> dict[str, str]:
    redacted: Mapping[str, str] = redact_json(dict(facts))
    return {one_line(fact): one_line(text, LONGEST_TEXT) for fact, text in redacted.items()}


def _runs(past: PastRuns, settings: _Shared, beside: Path) -> list[dict[str, Any]]:
    sites = [""] * len(past.runs)
    for cell, outcomes in past.cells.items():
        for place, one in enumerate(outcomes):
            if cell.site and one is not None:
                sites[place] = cell.site
    return [_run(run, one_line(site), settings, beside) for run, site in zip(past.runs, sites, strict=True)]


def _run(run: PastRun, site: str, settings: _Shared, beside: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": one_line(run.id, LONGEST_TEXT),
        "started": run.started,
        "setting": settings.number({"shared": _texts(run.shared), "basis": _texts(run.basis)}),
    }
    if site:
        found["site"] = site
    if page := _page(run.folder, beside):
        found["page"] = page
        # A run of several matrices has their names in the labels of its cells.
        found["several"] = sum(name.startswith("matrix ") for name in run.shared) > 1
    return found


def _page(folder: str, beside: Path) -> str:
    """Return the address of the page of a run, as seen from a folder; "" if it is not kept."""
    page = Path(folder, "index.html")
    try:
        kept = bool(folder) and page.is_file()
    except (OSError, ValueError):  # no name that a file may have
        kept = False
    return quote(os.fsencode(os.path.relpath(page, beside.resolve()))) if kept else ""


def _cell(past: PastRuns, cell: PastCell, shared: _PageValues, speeds: Iterable[SpeedHistory]) -> dict[str, Any]:
    found = past.cells[cell]
    history = cell_history(past.runs, found)
    last = next((one for one in reversed(found) if one is not None), None)
    lines = [one_line(line, LONGEST_TEXT) for line in cell_lines(history, past.runs)] if _tells(history) else []
    streaks = itertools.groupby(shared.outcomes.of(one) for one in found)
    data: dict[str, Any] = {
        "site": one_line(cell.site),
        "matrix": one_line(cell.matrix),
        "scenario": one_line(cell.scenario, LONGEST_LABEL),
        "axes": {one_line(axis): one_line(value) for axis, value in cell.axes.items()},
        "state": history.state.value,
        "verdict": last.verdict.value if last else Verdict.NOT_RUN.value,
        "kind": last.kind.value if last else "",
        "key": one_line(last.signature, LONGEST_TEXT) if last else "",
        "headline": lines[0] if lines else "",
        "lines": lines,
        "outcomes": [[number, len(list(streak))] for number, streak in streaks],
        "speeds": [_speed(one, past.runs, shared.speeds) for one in speeds],
        "wire": shared.wires.number(measured) if (measured := _wire(found)) else None,
    }
    return {field: value for field, value in data.items() if value not in ("", [], {}, None)}


def _tells(history: CellHistory) -> bool:
    return history.state.value not in ("steady", "not run")


def _speed(one: SpeedHistory, runs: Sequence[PastRun], kept: list[list[float | None]]) -> dict[str, Any]:
    """Return the course of a speed, whose values are added to `kept`."""
    kept.append([_finite(value, _DIGITS) for value in one.speed.values])
    return {
        "name": describe_quantity(one.speed.quantity),
        "unit": one_line(one.speed.quantity.unit),
        "values": len(kept) - 1,
        "shape": one.change.name,
        "steps": [
            {
                "night": step.night,
                "before": step.before,
                "after": step.after,
                "line": speed_line(one, place, runs),
                "changes": [one_line(change, LONGEST_TEXT) for change in changes[:_MOST_CHANGES]],
            }
            for place, (step, changes) in enumerate(zip(one.change.steps, one.changes, strict=True))
        ],
    }


def _wire(outcomes: Sequence[PastOutcome | None]) -> list[float | None]:
    """Return the bandwidth between the nodes in 1e9 B/s in each run; [] if it is unknown in all."""
    found = [_number(one.facts.get(WIRE, "")) if one else None for one in outcomes]
    return found if any(found) else []


def _number(text: str) -> float | None:
    try:
        return _finite(float(text.partition(" ")[0]), _DIGITS)
    except ValueError:
        return None


def _finite(value: float | None, digits: int) -> float | None:
    """Return a value in so many digits, None for one that JSON has not."""
    return float(f"{value:.{digits}g}") if value is not None and math.isfinite(value) else None


def _failure(one: FailureHistory, places: Mapping[PastCell, int]) -> dict[str, Any]:
    return {
        "name": one_line(one.name, LONGEST_TEXT),
        "state": one.state.value,
        "first": one.first,
        "last": one.last,
        "runs": one.runs,
        "since": one.since,
        "cells": [places[cell] for cell in one.cells],
        "hosts": [one_line(host) for host in one.hosts],
        "issue": one_line(one.issue, LONGEST_TEXT),
    }


def _hosts(past: PastRuns, failures: Sequence[FailureHistory]) -> list[dict[str, Any]]:
    """Return each host with the numbers of its cells, and the failures that only it has."""
    own: Mapping[str, Sequence[FailureHistory]] = dict(hosts_with_own_failures(failures))
    cells: dict[str, dict[int, None]] = {}
    for place, outcomes in enumerate(past.cells.values()):
        for one in {id(one): one for one in outcomes if one is not None}.values():
            for host in hosts_of(one):
                cells.setdefault(host, {})[place] = None
    return [
        {
            "name": one_line(host),
            "cells": list(places),
            "failures": [one_line(one.name, LONGEST_TEXT) for one in own.get(host, ())],
        }
        for host, places in sorted(cells.items())
    ]
