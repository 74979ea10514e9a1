"""A cell's performance references as thresholds of single points. Pure.

`from_matrix` gives thresholds that are known before the run. `from_link` and `from_cells` give those that the run
itself must measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.model.job import Job, Node, Requirements
from pytest_hetgpu.model.metrics import has_bandwidth
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.model.quantities import HIGHER, better, independent
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.sample import usable
from pytest_hetgpu.model.thresholds import EVERY, PerformanceReference, Threshold

Thresholds = Mapping[MessagePoint, tuple[Threshold, ...]]
Numbers = Sequence[Measurement]


def merged(*found: Thresholds) -> dict[MessagePoint, tuple[Threshold, ...]]:
    """Merge all thresholds by point."""
    points = dict.fromkeys(point for limits in found for point in limits)
    return {point: tuple(limit for limits in found for limit in limits.get(point, ())) for point in points}


def from_matrix(references: Iterable[PerformanceReference], demand: Requirements, nodes: Sequence[Node]) -> Thresholds:
    """Return the thresholds of the matrix itself: numbers, and fractions of a fabric's speed."""
    kinds = {"": lambda one: _numbers(one, demand), "fabric": lambda one: _fraction(one, demand, *_fabric(nodes))}
    return merged(*(kinds[one.of](one) for one in references if one.of in kinds))


def can_measure_link(job: Job) -> bool:
    """Return whether a job measures a bandwidth between nodes."""
    return job.demand.measured and has_bandwidth(job.demand.operation) and job.is_multi_host and len(job.nodes) > 1


def from_link(
    references: Iterable[PerformanceReference], demand: Requirements, link: LinkBandwidth | None
) -> Thresholds:
    """Return the thresholds from the measured bandwidth between the nodes (`RunResult.wire`)."""
    if link is None:
        found, reason = None, "nothing was measured between its nodes"
    else:
        found, reason = link.gbs, link.why
    speed_name = f"the {found:.3g} GB/s of the wire" if found else "the wire"
    return merged(*(_fraction(one, demand, found or 0.0, speed_name, reason) for one in references if one.of == "wire"))


def _fraction(
    reference: PerformanceReference, demand: Requirements, speed: float, speed_name: str, lacks: str = ""
) -> Thresholds:
    """Return thresholds for busbw: a fraction of a speed in GB/s. `lacks` is the reason for a speed of 0."""
    limit = Threshold(
        "busbw", f"{reference.fraction:g} of {speed_name} ({reference.origin})", (), "GB/s", HIGHER, reference.tolerance
    )
    wanted = (speed * reference.fraction,)
    one = replace(limit, values=wanted) if speed else replace(limit, lacks=lacks)
    return {point: (_possible(one, demand),) for point in _points_of(reference, demand)}


def _points_of(reference: PerformanceReference, demand: Requirements) -> list[MessagePoint]:
    return [point for point in demand.points if point.size >= reference.min_size]


def _numbers(reference: PerformanceReference, demand: Requirements) -> Thresholds:
    every = reference.numbers.get(0)
    if demand.points:
        numbers = {p: reference.numbers.get(p.size, every) for p in _points_of(reference, demand)}
    else:
        numbers = {EVERY if not size else MessagePoint(size, ""): value for size, value in reference.numbers.items()}
    limit = Threshold(reference.metric, reference.origin, tolerance=reference.tolerance, min_size=reference.min_size)
    return {
        point: (_possible(replace(limit, values=(number,)), demand),)
        for point, number in numbers.items()
        if number is not None
    }


def _possible(limit: Threshold, demand: Requirements) -> Threshold:
    """Return the limit; without values if its ranks cannot have a bandwidth, as one rank moves no data."""
    if limit.metric not in ("busbw", "algbw") or demand.row_ranks != 1:
        return limit
    return replace(limit, values=(), lacks=f"{demand.operation} of 1 ranks has no {limit.metric}")


def _fabric(nodes: Sequence[Node]) -> tuple[float, str]:
    """Return GB/s of the slowest node's fabric, and its description."""
    slowest = min((node.hardware.fabric.gbps or 0.0, node.hardware.name) for node in nodes)
    return slowest[0] / 8, f"the {slowest[0]:g} Gbit/s of {slowest[1]}"


def from_cells(
    references: Iterable[PerformanceReference], demand: Requirements, measured: Callable[[str], Numbers | str]
) -> Thresholds:
    """Return the thresholds from other cells. `measured` returns a cell's numbers by id, or why it has none."""
    return merged(*(_from_cell(reference, demand, measured) for reference in references if reference.cell))


def _from_cell(
    reference: PerformanceReference, demand: Requirements, measured: Callable[[str], Numbers | str]
) -> Thresholds:
    found = measured(reference.cell)
    share = "" if reference.fraction == 1 else f"{reference.fraction:g} of "
    if reference.efficiency:
        share = f"an efficiency of {reference.efficiency:g} against "
    limit = Threshold(reference.metric, f"{share}{reference.cell} ({reference.origin})", tolerance=reference.tolerance)
    points = _points_of(reference, demand) or [EVERY]
    if isinstance(found, str):
        return {point: (replace(limit, lacks=found),) for point in points}
    there = comparable(one for one in found if reference.metric in ("", one.metric))
    if not demand.points:
        points = list(dict.fromkeys(one.point for one in there if one.point.size >= reference.min_size)) or [EVERY]
    return {point: tuple(_scaled(limit, point, there, reference.fraction)) for point in points}


def _scaled(limit: Threshold, point: MessagePoint, there: Numbers, fraction: float) -> Iterator[Threshold]:
    """Yield the limits of one point: of each metric that the other cell measured there."""
    same = [one for one in there if one.point == point]
    # The other cell has its types; this one may accept any.
    same = same or [one for one in there if not point.dtype and replace(one.point, dtype="") == point]
    for one in {one.metric: one for one in reversed(same)}.values():
        made = from_measured(limit, one, one.samples or (one.value,))
        yield replace(made, values=tuple(made.value(made.cost(value) / fraction) for value in made.values))
    if not same:
        yield replace(limit, lacks="it was not measured there")


def comparable(measurements: Iterable[Measurement]) -> Numbers:
    """Return the independent numbers above 0 whose direction is known."""
    return [one for one in independent(measurements) if one.value > 0 and usable(one.value) and better(one)]


def from_measured(limit: Threshold, one: Measurement, values: Iterable[float]) -> Threshold:
    """Return a limit of measured values, which are of the metric and the unit of `one`."""
    kept = tuple(value for value in values if value > 0 and usable(value))
    return replace(limit, metric=one.metric, values=kept, unit=one.unit, better=better(one))
