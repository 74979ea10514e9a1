"""References of a matrix as those of single cells. A reference that cannot apply to its cell is an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.matrix import AxisValue, CellSettings, Matrix, ReferenceRule
from pytest_hetgpu.config.matrix.models import Options
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.job import Exclusion, Origin
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.model.metrics import has_bandwidth
from pytest_hetgpu.model.quantities import MetricKind, no_direction
from pytest_hetgpu.model.sizes import parse_size, show_size
from pytest_hetgpu.model.thresholds import PerformanceReference

Cell = tuple[str, ...]
LARGE = 1 << 20
"""Below this size latency dominates the time of a message, and no fraction of the fabric speed is expected."""


class Cells(NamedTuple):
    """All cells of a matrix with their exclusions, and their ids."""

    excluded: Mapping[Cell, Exclusion | None]
    ids: Mapping[Cell, str]


def references(
    matrix: Matrix, cells: Cells, diagnostics: Diagnostics
) -> Mapping[Cell, tuple[PerformanceReference, ...]]:
    """Return the references of each cell in file order: first those of its values, then those of rules."""
    found: dict[Cell, tuple[PerformanceReference, ...]] = {}
    axes = tuple(axis.name for axis in matrix.axes)
    for rule in (*_of_values(matrix), *matrix.references):
        reader = _ReferenceReader(matrix, rule, diagnostics)
        hits = [cell for cell in _run(cells) if _names(rule, axes, cell)]
        if not hits and rule in matrix.references:
            diagnostics.add(rule.origin.line, "this reference matches no cell that is run")
        if not reader.is_valid(axes) or not reader.names_metrics(hits):
            continue
        made = {cell: tuple(reader.of(cell, cells)) for cell in hits}
        if hits and not any(made.values()) and not diagnostics:
            reader.report("names no other cell than those it is a reference for", "of")
        found.update({cell: (*found.get(cell, ()), *more) for cell, more in made.items()})
    return found


def _run(cells: Cells) -> Iterator[Cell]:
    return (cell for cell, exclusion in cells.excluded.items() if exclusion is None)


def _names(rule: ReferenceRule, axes: Sequence[str], cell: Cell) -> bool:
    return all(value in rule.where.get(axis, (value,)) for axis, value in zip(axes, cell, strict=True))


def _of_values(matrix: Matrix) -> Iterator[ReferenceRule]:
    """Yield the references that values of axes have."""
    on_axes = (value for axis in matrix.axes for value in axis.values)
    for axis_value in (*on_axes, *matrix.extra.values(), *matrix.transports.values()):
        if "reference" not in axis_value.raw:
            continue
        shapes = Options.model_validate({"reference": axis_value.raw["reference"]}).reference
        for shape, node in zip(shapes, _nodes(axis_value), strict=True):
            line = axis_value.line("reference") if len(shapes) == 1 else node.line
            yield ReferenceRule(
                shape, {axis_value.axis: (axis_value.name,)}, node, Origin(axis_value.origin.file, line)
            )


def _nodes(axis_value: AxisValue) -> list[source.Mapping]:
    node = axis_value.node.entries["reference"]
    nodes = node.items if isinstance(node, source.Sequence) else [node]
    return [one for one in nodes if isinstance(one, source.Mapping)]


class _ReferenceReader:
    """Converter of one reference to those of single cells."""

    def __init__(self, matrix: Matrix, rule: ReferenceRule, diagnostics: Diagnostics) -> None:
        self.matrix = matrix
        self.rule = rule
        self.diagnostics = diagnostics

    def report(self, text: str, *keys: str) -> None:
        """Add an error about a key of the reference, with the line of that key."""
        line, node = self.rule.origin.line, self.rule.node
        for key in keys:
            line = node.lines.get(key, line)
            inner = node.entries.get(key)
            if not isinstance(inner, source.Mapping):
                break
            node = inner
        self.diagnostics.add(line, f"{'.'.join(('reference', *keys))}: {text}")

    def is_valid(self, axes: Sequence[str]) -> bool:
        """Return whether the axes and values of the other cell exist."""
        of = self.rule.shape.of
        bad = False
        for axis, value in of.items() if isinstance(of, dict) else ():
            if axis not in axes:
                self.report(f"unknown axis {axis!r} {known(axis, axes)}", "of", axis)
                bad = True
            elif value not in (names := self.matrix.names(axis)):
                self.report(f"unknown {axis} {value!r} {known(value, names)}", "of", axis)
                bad = True
        return not bad

    def names_metrics(self, hits: Sequence[Cell]) -> bool:
        """Return whether each metric is one of a workload among the cells, with a direction."""
        works = {cell[2]: self.matrix.settings(cell).workload.metrics() for cell in hits}
        if not works or None in works.values():
            return True
        problems = {metric: self._problem(metric, works) for metric in self.rule.shape.metrics}
        for metric, problem in problems.items():
            if problem:
                self.report(problem, metric)
        return not any(problems.values())

    def _problem(self, metric: str, works: Mapping[str, Mapping[str, MetricKind] | None]) -> str:
        """Return why these workloads cannot be compared by a metric, "" if one of them can."""
        every = {name: kind for kinds in works.values() for name, kind in (kinds or {}).items()}
        several = f"workload{'s' * (len(works) > 1)} {', '.join(map(repr, works))}"
        if not every:
            return f"{several} measure{'s' * (len(works) == 1)} nothing"
        if metric not in every:
            return f"{several} ha{'ve' if len(works) > 1 else 's'} no metric {metric!r} {known(metric, every)}"
        found = [kinds[metric] for kinds in works.values() if kinds and metric in kinds]
        shown = any(kind.better or kind.unit is None for kind in found)
        return "" if shown else no_direction(metric, found[0].unit or "")

    def of(self, cell: Cell, cells: Cells) -> Iterator[PerformanceReference]:
        """Yield the references of one cell. Add an error if none can apply to it."""
        shape, settings = self.rule.shape, self.matrix.settings(cell)
        workload, kinds = cell[2], settings.workload.metrics()
        if kinds == {}:
            self.report(f"workload {workload!r} measures nothing")
            return
        if shape.of is None:
            yield from self._numbers(workload, settings)
            return
        if kinds and not any(kind.better or kind.unit is None for kind in kinds.values()):
            name, kind = next(iter(kinds.items()))
            self.report(no_direction(name, kind.unit or ""), "of")
            return
        other = self._other_cell(cell, cells) if isinstance(shape.of, dict) else ""
        if other is None:
            return
        if not other and not self._has_speed(cell, settings):
            return
        least = shape.min_size or (0 if other else LARGE)
        sizes = [point.size for point in settings.workload.points()]
        if sizes and max(sizes) < least:
            text = f"workload {workload!r} has no size of {show_size(least)} or more; give min_size"
            self.report(text, "min_size")
            return
        of = "cell" if other else str(shape.of)
        yield self._reference(settings, of=of, cell=other, fraction=shape.fraction, min_size=least)

    def _reference(self, settings: CellSettings, **values: object) -> PerformanceReference:
        shape = self.rule.shape
        tolerance = settings.options.tolerance if shape.tolerance is None else shape.tolerance
        return PerformanceReference(str(self.rule.origin), tolerance=tolerance, **values)  # type: ignore[arg-type]

    def _numbers(self, workload: str, settings: CellSettings) -> Iterator[PerformanceReference]:
        shape, kinds = self.rule.shape, settings.workload.metrics()
        sizes = [point.size for point in settings.workload.points()]
        for metric, numbers in shape.metrics.items():
            if kinds is not None and metric not in kinds:
                continue
            for size in (size for size in numbers if size and sizes and size not in sizes):
                ran = known(show_size(size), dict.fromkeys(map(show_size, sizes)), len(sizes))
                text = f"workload {workload!r} is not run at {show_size(size)} {ran}"
                self.report(text, metric, self._key(metric, size))
            if shape.min_size and sizes and max(sizes) < shape.min_size:
                text = f"workload {workload!r} has no size of {show_size(shape.min_size)} or more"
                self.report(text, "min_size")
            yield self._reference(settings, metric=metric, numbers=numbers, min_size=shape.min_size or 0)

    def _key(self, metric: str, size: int) -> str:
        """Return the size as the file writes it."""
        node = self.rule.node.entries[metric]
        keys = node.entries if isinstance(node, source.Mapping) else ()
        return next((key for key in keys if parse_size(key) == size), show_size(size))

    def _has_speed(self, cell: Cell, settings: CellSettings) -> bool:
        """Return whether the speed of the workload is comparable with that of the fabric or the wire."""
        if not _has_bandwidth(settings.workload):
            self.report(f"workload {cell[2]!r} has no bandwidth, only a latency", "of")
            return False
        if self.rule.shape.of == "wire":
            return self._has_link(cell, settings)
        silent = [name for name in settings.nodes if self.matrix.hardware[name].fabric.gbps is None]
        for name in silent:
            self.report(f"hardware {name!r} has no fabric speed: set fabric.gbps", "of")
        return not silent

    def _has_link(self, cell: Cell, settings: CellSettings) -> bool:
        """Return whether a network link can connect the nodes of a cell."""
        local = all(self.matrix.hardware[name].runtime == "local" for name in settings.nodes)
        if len(settings.nodes) > 1 and not local:
            return True
        why = "it is one node" if len(settings.nodes) == 1 else "they are this machine (runtime local)"
        self.report(f"placement {cell[0]!r} has no wire between its nodes: {why}", "of")
        return False

    def _other_cell(self, cell: Cell, cells: Cells) -> str | None:
        """Return the id of the other cell. Return None for the cell itself and, with an error, for an unusable one."""
        of = self.rule.shape.of
        assert isinstance(of, dict)
        axes = [axis.name for axis in self.matrix.axes]
        other = tuple(of.get(axis, value) for axis, value in zip(axes, cell, strict=True))
        if other == cell:
            return None
        name = "-".join(other)
        if other not in cells.excluded:
            self.report(f"{cells.ids[cell]} would be compared with {name}, which is no cell of this matrix", "of")
            return None
        exclusion = cells.excluded[other]
        if exclusion:
            where = f" (line {exclusion.origin.line})" if exclusion.origin else ""
            self.report(f"{cells.ids[cell]} would be compared with {name}, which is excluded{where}", "of")
            return None
        mine, theirs = (self.matrix.settings(values).workload for values in (cell, other))
        least = self.rule.shape.min_size or 0
        points = [point for point in mine.points() if point.size >= least and point not in theirs.points()]
        lacks = [f"{show_size(point.size)} {point.dtype}{' in place' if point.in_place else ''}" for point in points]
        shared = (mine.metrics(), theirs.metrics())
        alike = None in shared or {*(shared[0] or ())} & {*(shared[1] or ())}
        if lacks or not alike:
            reason = f"is not run at {', '.join(lacks[:5])}" if lacks else "measures nothing that this one does"
            self.report(f"{cells.ids[cell]} would be compared with {name}, which {reason}", "of")
            return None
        return cells.ids[other]


def _has_bandwidth(workload: Workload) -> bool:
    """Return whether the measurements of a workload have a bandwidth by its definition."""
    return has_bandwidth(workload.measured_operation(2))
