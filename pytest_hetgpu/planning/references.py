"""A cell's performance references as thresholds of single points. Pure.

`from_matrix` gives thresholds that are known before the run. `from_link` and `from_cells` give those that the run
itself must measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.model.job import Job, Node, Requirements
from pytest_hetgpu.model.metrics import has_bandwidth, to_seconds
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.thresholds import PerformanceReference, Threshold

Thresholds = Mapping[MessagePoint, tuple[Threshold, ...]]
Times = Mapping[MessagePoint, tuple[float, ...]]
"""Seconds that a cell took per point, one value per repeat."""
SMALL = 8192
"""Messages below this number of bytes have a latency; their bandwidth would be meaningless."""


def metric_of(demand: Requirements, point: MessagePoint) -> str:
    """Return the metric that reports use for a point's time."""
    return "busbw" if point.size >= SMALL and has_bandwidth(demand.operation, demand.row_ranks) else "latency"


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
    source = f"{reference.fraction:g} of {speed_name} ({reference.origin})"
    wanted = ("busbw", speed * reference.fraction)
    return {
        point: (
            _threshold(reference, wanted, point, demand, source) if speed else Threshold("busbw", source, lacks=lacks),
        )
        for point in _points_of(reference, demand)
    }


def _points_of(reference: PerformanceReference, demand: Requirements) -> list[MessagePoint]:
    return [point for point in demand.points if point.size >= reference.min_size]


def _numbers(reference: PerformanceReference, demand: Requirements) -> Thresholds:
    numbers = {p: reference.numbers.get(p.size, reference.numbers.get(0)) for p in _points_of(reference, demand)}
    return {
        point: (_threshold(reference, (reference.metric, number), point, demand, reference.origin),)
        for point, number in numbers.items()
        if number is not None
    }


def _threshold(
    reference: PerformanceReference, number: tuple[str, float], point: MessagePoint, demand: Requirements, source: str
) -> Threshold:
    metric, value = number
    try:
        seconds = to_seconds(metric, value, demand.operation, point.size, demand.row_ranks)
    except ValueError as error:
        return Threshold(metric, source, lacks=str(error))
    return Threshold(metric, source, (seconds,), reference.tolerance)


def _fabric(nodes: Sequence[Node]) -> tuple[float, str]:
    """Return GB/s of the slowest node's fabric, and its description."""
    slowest = min((node.hardware.fabric.gbps or 0.0, node.hardware.name) for node in nodes)
    return slowest[0] / 8, f"the {slowest[0]:g} Gbit/s of {slowest[1]}"


def from_cells(
    references: Iterable[PerformanceReference], demand: Requirements, measured: Callable[[str], Times | str]
) -> Thresholds:
    """Return the thresholds from other cells. `measured` returns a cell's times by id, or why it has none."""
    return merged(*(dict(_from_cell(reference, demand, measured)) for reference in references if reference.cell))


def _from_cell(
    reference: PerformanceReference, demand: Requirements, measured: Callable[[str], Times | str]
) -> Iterator[tuple[MessagePoint, tuple[Threshold, ...]]]:
    found = measured(reference.cell)
    share = "" if reference.fraction == 1 else f"{reference.fraction:g} of "
    if reference.efficiency:
        share = f"an efficiency of {reference.efficiency:g} against "
    source = f"{share}{reference.cell} ({reference.origin})"
    for point in _points_of(reference, demand):
        metric = metric_of(demand, point)
        if isinstance(found, str):
            yield point, (Threshold(metric, source, lacks=found),)
        elif times := found.get(point) or _of_any_type(point, found):
            seconds = tuple(time / reference.fraction for time in times)
            yield point, (Threshold(metric, source, seconds, reference.tolerance),)
        else:
            yield point, (Threshold(metric, source, lacks="it was not measured there"),)


def _of_any_type(point: MessagePoint, found: Times) -> tuple[float, ...]:
    """Return the times of a point that is required in any dtype; nothing for a point with a dtype."""
    types = (other for other in found if not point.dtype and replace(other, dtype="") == point)
    return next((found[other] for other in types), ())
