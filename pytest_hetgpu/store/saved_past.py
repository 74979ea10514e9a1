"""`past.json` in the folder of a run: the runs before it, so that its reports can be built again without the history.

    {"schema": 1, "runs": [{"id": ..., "started": ..., "shared": {...}, "basis": {...}, "folder": ...}, ...],
     "outcomes": [{"kind": ..., "verdict": ..., "signature": ..., "facts": {...}, "nodes": {...}}, ...],
     "cells": [[matrix, id, [[outcome, runs], ...]], ...]}

Equal outcomes are stored once. A cell has the number of an outcome, or null, and for how many runs in a row it had it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.encode import RecordError, from_json, to_json
from pytest_hetgpu.store.files import read_input, write_atomically
from pytest_hetgpu.store.folder import PAST
from pytest_hetgpu.store.past_runs import PastCell, PastOutcome, PastRun, PastRuns, past_runs
from pytest_hetgpu.store.redaction.redact import redact_json
from pytest_hetgpu.store.run_summary import run_id, run_start

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

SCHEMA = 1
NIGHTS = 60
"""How many earlier runs the reports of a run look back."""


def save_earlier_runs(folder: Path, record: RunRecord, history: HistoryPlace) -> None:
    """Store the newest runs of a history before this one. Raises HistoryError or OSError."""
    past = past_runs(history, NIGHTS, run_start(record), run_id(record, folder))
    save(folder, past, [(cell.matrix, cell.scenario) for cell in record.cells])


def save(folder: Path, past: PastRuns, cells: Iterable[tuple[str, str]]) -> None:
    """Store what a history has of these cells (matrix and id) of this site, redacted. Raises OSError."""
    wanted = set(cells)
    numbers: dict[int, int] = {}
    outcomes: list[PastOutcome] = []
    rows = []
    for cell, found in past.cells.items():
        if cell.site or (cell.matrix, cell.scenario) not in wanted:
            continue
        for one in found:
            if one is not None and id(one) not in numbers:
                numbers[id(one)] = len(outcomes)
                outcomes.append(one)
        streaks = itertools.groupby(None if one is None else numbers[id(one)] for one in found)
        rows.append([cell.matrix, cell.scenario, [[number, len(list(streak))] for number, streak in streaks]])
    kept = {"schema": SCHEMA, "runs": _all(past.runs), "outcomes": _all(outcomes), "cells": rows}
    write_atomically(folder / PAST, f"{json.dumps(redact_json(kept))}\n".encode("ascii"))


def _all(objects: Iterable[PastRun | PastOutcome]) -> list[object]:
    return [to_json(one) for one in objects]


def read(folder: Path) -> PastRuns | None:
    """Read what `save` stored; return None if there is none, or it cannot be read."""
    try:
        data = json.loads(read_input(folder / PAST))
        return _decode(data) if data["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError, RecordError):
        return None


def _decode(data: Mapping[str, Any]) -> PastRuns:
    outcomes = [from_json(PastOutcome, one) for one in data["outcomes"]]
    runs = tuple(from_json(PastRun, one) for one in data["runs"])
    cells = {}
    for matrix, scenario, streaks in data["cells"]:
        # A damaged count must not fill the memory.
        if any(count < 1 for _, count in streaks) or sum(count for _, count in streaks) != len(runs):
            raise ValueError(f"{scenario}: no outcomes of {len(runs)} runs")
        found = (None if number is None else outcomes[number] for number, count in streaks for _ in range(count))
        cells[PastCell("", str(matrix), str(scenario))] = tuple(found)
    return PastRuns(runs, cells)
