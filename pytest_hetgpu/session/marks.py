"""Marks of cells, so that `-m` and `-k` know a cell by its axis values, hardware, platforms, family and kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.planning.matrix_set import MatrixSet

CELL = "hetgpu"


def registered(config: Any, suite: MatrixSet, mark: Any) -> dict[str, Any]:
    """Register a mark for each axis value, platform and family. Raise an error for the name of an existing mark."""
    taken = {line.split(":")[0].split("(")[0].strip() for line in config.getini("markers")}
    names = dict.fromkeys(suite.words(taken))
    for name in names.keys() - taken:
        config.addinivalue_line("markers", f"{name}: of a hetgpu matrix")
    return {name: getattr(mark, name).mark for name in (CELL, *names)}


def marked(
    items: Iterable[Any],
    marks: Mapping[str, Any],
    matrices: Mapping[str, Matrix],
) -> None:
    """Add the marks of its cell to each of pytest's items. Cells with the same value share its marks."""
    shared: dict[tuple[str, str, str], list[Any]] = {}
    for item in items:
        scenario = cell_of(item)
        if scenario is None:
            continue
        item.own_markers.append(marks[CELL])
        item.keywords[CELL] = marks[CELL]
        for axis, name in zip(scenario.axes, scenario.values, strict=True):
            of_value = shared.get((scenario.matrix, axis, name))
            if of_value is None:
                words = matrices[scenario.matrix].words_of(axis, name)
                of_value = shared[scenario.matrix, axis, name] = [marks[word] for word in words]
            item.own_markers.extend(of_value)


def cell_of(item: Any) -> Scenario | None:
    """Return the scenario that a test was made for."""
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("scenario") if callspec else None
    return found if isinstance(found, Scenario) else None
