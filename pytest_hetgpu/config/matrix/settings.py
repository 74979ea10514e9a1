"""Checks of the combined settings of cells: values agree, every setting is accepted, and all are valid together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pytest_hetgpu.config.matrix.diagnostics import ALL, Diagnostics
from pytest_hetgpu.config.matrix.matrix import COMMON, MAIN_AXES, AxisValue, Conflict, Matrix, conflicts
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.transports.base import Transport
from pytest_hetgpu.model.messages import known

Cell = tuple[str, ...]


def check_settings(matrix: Matrix, cells: Sequence[Cell], diagnostics: Diagnostics) -> None:
    """Add the errors in the settings of these cells. Values of cells that do not run may disagree."""
    _disagreements(matrix, cells, diagnostics)
    _unaccepted(matrix, cells, diagnostics)
    if diagnostics:
        return
    main = len(MAIN_AXES)
    for axis, place in (("transport", 1), ("workload", 2)):
        for values in dict.fromkeys((cell[place], *cell[main:]) for cell in cells):
            try:
                matrix.check(axis, values)
            except MatrixError as error:
                diagnostics.take(error)


def _disagreements(matrix: Matrix, cells: Sequence[Cell], diagnostics: Diagnostics) -> None:
    """Add an error per key that two values of a cell set differently."""
    places = {axis.name: place for place, axis in enumerate(matrix.axes)}
    met: dict[tuple[int, int], set[tuple[str, str]]] = {}
    for conflict in _possible(matrix):
        one, other = places[conflict.one.axis], places[conflict.other.axis]
        if (one, other) not in met:
            met[one, other] = {(cell[one], cell[other]) for cell in cells}
        if (conflict.one.name, conflict.other.name) in met[one, other]:
            diagnostics.take(matrix.disagreement(conflict))


def _possible(matrix: Matrix) -> Iterator[Conflict]:
    """Yield the conflicts between values of different axes, whether or not a cell combines them."""
    setters: dict[str, dict[str, list[AxisValue]]] = {axis.name: {} for axis in matrix.axes}
    for axis_value in matrix.axis_values():
        for key in axis_value.raw:
            setters[axis_value.axis].setdefault(key, []).append(axis_value)
    for one, other in itertools.combinations(setters.values(), 2):
        pairs = (pair for key in one if key in other for pair in itertools.product(one[key], other[key]))
        seen: set[tuple[str, str]] = set()
        for mine, theirs in pairs:
            if (mine.name, theirs.name) not in seen:
                seen.add((mine.name, theirs.name))
                yield from conflicts((mine, theirs))


def _unaccepted(matrix: Matrix, cells: Sequence[Cell], diagnostics: Diagnostics) -> None:
    """Add an error per setting of a further axis that the transports or workloads of its cells do not accept."""
    for place, axis in enumerate(matrix.axes[len(MAIN_AXES) :], len(MAIN_AXES)):
        values = [value for value in matrix.axis_values() if value.axis == axis.name]
        special = [(value, key) for value in values for key in value.raw if key not in COMMON]
        met = {(cell[place], cell[1], cell[2]) for cell in cells} if special else set()
        for value, key in special:
            takes = {name: key in matrix.takes(*name) for name in _takers(matrix)}
            rejected = [
                (t, w) for v, t, w in met if v == value.name and not (takes["transport", t] or takes["workload", w])
            ]
            if rejected:
                diagnostics.add(value.line(key), _describe_unaccepted(matrix, value, key, rejected))


def _takers(matrix: Matrix) -> Iterator[tuple[str, str]]:
    return ((value.axis, value.name) for value in matrix.axis_values() if value.axis in ("transport", "workload"))


def _describe_unaccepted(matrix: Matrix, value: AxisValue, key: str, rejected: Sequence[tuple[str, str]]) -> str:
    transports = (find("transports", name, Transport) for name in names("transports"))  # type: ignore[type-abstract]
    owner, place = ("transport", 0) if any(key in t.Settings.model_fields for t in transports) else ("workload", 1)
    rejecting = [name for name in matrix.names(owner) if name in {pair[place] for pair in rejected}]
    choices = known(key, COMMON | matrix.takes(owner, rejecting[0]), ALL)
    owners = f"{owner} {', '.join(rejecting)}"
    return f"{value.axis} {value.name!r} sets {key!r}, which {owners} does not take {choices}; exclude those cells"
