"""The data of the page of nights as JSON: all of it is cleaned, cut and redacted here."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_hetgpu.analysis.cell_history import WIRE, CellHistory, cell_history, changes_of_runs
from pytest_hetgpu.analysis.nights.failures import (
    FailureHistory,
    failure_histories,
    hosts_of,
    hosts_with_own_failures,
)
from pytest_hetgpu.analysis.nights.speeds import SpeedHistory
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting.history_lines import cell_lines, cell_names, letters
from pytest_hetgpu.reporting.speed_lines import describe_quantity, speed_line
from pytest_hetgpu.store.past_runs import PastCell, PastOutcome, PastRun, PastRuns
from pytest_hetgpu.store.text import one_line

LONGEST_TEXT = 300
_MOST_CHANGES = 30
_DIGITS = 4


def nights_data(past: PastRuns, speeds: Sequence[SpeedHistory], lacks: str, beside: Path) -> dict[str, Any]:
    """Convert runs to the data of their page.

    Args:
        past: the runs and the outcomes of their cells.
        speeds: the speeds of cells.
        lacks: why steps of speeds were not looked for; "" if they were.
        beside: the folder of the page, from which it links to the pages of runs that are kept.

    """
    name = cell_names(past)
    outcomes, wires, failures = _Outcomes(), _Shared(), failure_histories(past)
    of_cell: dict[PastCell, list[SpeedHistory]] = {}
    for one in speeds:
        of_cell.setdefault(one.cell, []).append(one)
    return {
        "matrices": [[one_line(matrix), ""] for matrix in dict.fromkeys(cell.matrix for cell in past.cells)],
        "lacks": lacks,
        "runs": [_run(run, beside) for run in past.runs],
        "between": [_between(past.runs, place) for place in range(len(past.runs))],
        "cells": [
            _cell(past, cell, (outcomes, wires), of_cell.get(cell, ())) | {"id": one_line(name(cell), LONGEST_TEXT)}
            for cell in past.cells
        ],
        "outcomes": outcomes.data,
        "wires": wires.data,
        "failures": [_failure(one, name) for one in failures],
        "hosts": _hosts(past, failures),
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
            facts = {fact: text for fact, text in {**one.facts, **one.nodes}.items() if fact != WIRE}
            texts = {one_line(fact): one_line(text, LONGEST_TEXT) for fact, text in facts.items()}
            name = one_line(one.name, LONGEST_TEXT)
            self._known[id(one)] = (self.number({"verdict": one.verdict.value, "name": name, "facts": texts}), one)
        return self._known[id(one)][0]


def _run(run: PastRun, beside: Path) -> dict[str, Any]:
    page = Path(run.folder, "index.html")
    found: dict[str, Any] = {"id": one_line(run.id, LONGEST_TEXT), "started": run.started}
    if run.folder and page.is_file():
        found["page"] = Path(os.path.relpath(page, beside.resolve())).as_posix()
    return found


def _between(runs: Sequence[PastRun], place: int) -> list[str]:
    """Return what all cells of a run share, and the run before had otherwise."""
    if not place:
        return []
    found = changes_of_runs(runs[place - 1], runs[place])
    return [one_line(change, LONGEST_TEXT) for change in itertools.islice(found, _MOST_CHANGES)]


def _cell(
    past: PastRuns, cell: PastCell, shared: tuple[_Outcomes, _Shared], speeds: Iterable[SpeedHistory]
) -> dict[str, Any]:
    outcomes, wires = shared
    found = past.cells[cell]
    history = cell_history(past.runs, found)
    last = next((one for one in reversed(found) if one is not None), None)
    lines = [one_line(line, LONGEST_TEXT) for line in cell_lines(history, past.runs)] if _tells(history) else []
    streaks = itertools.groupby(outcomes.of(one) for one in found)
    data: dict[str, Any] = {
        "site": one_line(cell.site),
        "matrix": one_line(cell.matrix),
        "scenario": one_line(cell.scenario, LONGEST_TEXT),
        "axes": {one_line(axis): one_line(value) for axis, value in cell.axes.items()},
        "state": history.state.value,
        "verdict": last.verdict.value if last else Verdict.NOT_RUN.value,
        "kind": last.kind.value if last else "",
        "key": one_line(last.signature, LONGEST_TEXT) if last else "",
        "headline": lines[0] if lines else "",
        "lines": lines,
        "letters": letters(found),
        "outcomes": [[number, len(list(streak))] for number, streak in streaks],
        "since": history.since,
        "speeds": [_speed(one, past.runs) for one in speeds],
        "wire": wires.number(measured) if (measured := _wire(found)) else None,
    }
    return {field: value for field, value in data.items() if value not in ("", [], {}, None)}


def _tells(history: CellHistory) -> bool:
    return history.state.value not in ("steady", "not run")


def _speed(one: SpeedHistory, runs: Sequence[PastRun]) -> dict[str, Any]:
    return {
        "name": describe_quantity(one.speed.quantity),
        "unit": one_line(one.speed.quantity.unit),
        "values": [None if value is None else float(f"{value:.{_DIGITS}g}") for value in one.speed.values],
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
        return float(text.partition(" ")[0])
    except ValueError:
        return None


def _failure(one: FailureHistory, name: Callable[[PastCell], str]) -> dict[str, Any]:
    return {
        "name": one_line(one.name, LONGEST_TEXT),
        "state": one.state.value,
        "first": one.first,
        "last": one.last,
        "runs": one.runs,
        "since": one.since,
        "cells": [one_line(name(cell), LONGEST_TEXT) for cell in one.cells],
        "hosts": [one_line(host) for host in one.hosts],
        "issue": one_line(one.issue, LONGEST_TEXT),
    }


def _hosts(past: PastRuns, failures: Sequence[FailureHistory]) -> list[dict[str, Any]]:
    """Return each host with the failures that only it has."""
    own: Mapping[str, Sequence[FailureHistory]] = dict(hosts_with_own_failures(failures))
    seen = {id(one): one for outcomes in past.cells.values() for one in outcomes if one is not None}
    every = dict.fromkeys(host for one in seen.values() for host in hosts_of(one))
    return [
        {"name": one_line(host), "failures": [one_line(one.name, LONGEST_TEXT) for one in own.get(host, ())]}
        for host in sorted(every)
    ]
