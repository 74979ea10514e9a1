"""Directions of quantities: whether less or more of one is better, and numbers that repeat another one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.sizes import show_size

LOWER, HIGHER = "lower", "higher"
SMALL = 8192
"""Messages below this number of bytes have a latency; their bandwidth would be meaningless."""
_TIME = re.compile(r"[fpn\u00b5\u03bcum]?s|[num]?sec|seconds?|min(utes?)?|h(ours?)?|d(ays?)?", re.ASCII)
_STORED = re.compile(r"(.*?) ?\((lower|higher) is better\)")
_LARGE = 1e8
# Rates that are written without a slash.
_RATE = re.compile(r"[kKMGTPE]?(FLOPS?|Hz|TEPS|IOPS|bps|Bps)|fps|tps|qps", re.IGNORECASE)


class MetricKind(NamedTuple):
    """Unit of a metric, and which way is better: `lower`, `higher`, or "" if that is unknown.

    `unit` is None if only the output shows it.
    """

    unit: str | None
    better: str


def direction(unit: str) -> str:
    """Return `lower` for a time, `higher` for a rate, "" for a unit that shows neither.

    A time per item (`s/step`) is a time, a number per time (`GB/s`, `ns/day`) is a rate.
    """
    over, slash, under = unit.strip().partition("/")
    if slash and _TIME.fullmatch(under.strip()):
        return HIGHER
    if _TIME.fullmatch(over.strip()):
        return LOWER
    return HIGHER if not slash and _RATE.fullmatch(over.strip()) else ""


def better(one: Measurement) -> str:
    """Return the direction of a measurement: the stated one, else that of its unit."""
    return one.better or direction(one.unit)


def stored_unit(one: Measurement) -> str:
    """Return the unit with a stated direction, for stores that have no column of it: `Ry (lower is better)`."""
    return f"{one.unit} ({one.better} is better)".strip() if one.better else one.unit


def split_unit(text: str) -> tuple[str, str]:
    """Return unit and stated direction of a text that `stored_unit` made."""
    found = _STORED.fullmatch(text)
    return (found[1], found[2]) if found else (text, "")


def no_direction(metric: str, unit: str) -> str:
    """Describe the lack of a direction, with the cure."""
    of = f"the unit {unit!r}" if unit else "no unit"
    return f"{metric} has {of}, which does not tell what is better: set `better: lower` or `better: higher` beside it"


def independent(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Leave out numbers that are computed from the time of the same point, except the telling one.

    Latency, algbw and busbw are one time. Small messages have their latency, larger ones their busbw.
    """
    found = tuple(measurements)
    names: dict[MessagePoint, set[str]] = {}
    for one in found:
        names.setdefault(one.point, set()).add(one.metric)
    return tuple(one for one in found if not _repeats(one, names[one.point]))


def _repeats(one: Measurement, names: set[str]) -> bool:
    if "busbw" not in names or "latency" not in names:
        return one.metric == "algbw" and "busbw" in names
    return one.metric in (("latency", "algbw") if one.point.size >= SMALL else ("busbw", "algbw"))


def telling(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Return one number per metric, in their order: a rate at its best, any other at the smallest size."""
    chosen: dict[str, Measurement] = {}
    names = {one.metric for one in measurements}
    for one in measurements:
        if one.metric == "algbw" and "busbw" in names:
            continue
        first = chosen.setdefault(one.metric, one)
        smaller = (one.point.size, one.value) < (first.point.size, first.value)
        if one.value > first.value if better(one) == HIGHER else smaller:
            chosen[one.metric] = one
    return tuple(chosen.values())


def headline(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Return the first telling number, and the first one with the other direction."""
    found = telling(measurements)
    other = next((one for one in found if better(one) != better(found[0])), None)
    return (*found[:1], *((other,) if other else ()))


def describe(one: Measurement, *, typed: bool = True) -> str:
    """Format a measurement for people: `busbw 1.32 GB/s at 4M float32`, `loop 3.81 s`; with its type if `typed`."""
    place = " in place" if one.point.in_place else ""
    dtype = f" {one.point.dtype}{place}" if typed and one.point.dtype not in ("", "none") else ""
    at = f" at {show_size(one.point.size)}{dtype}" if one.point.size > 0 else ""
    return f"{one.metric.replace('_', ' ')} {digits(one.value)} {one.unit}".rstrip() + at


def digits(value: float) -> str:
    """Format a value with three significant digits: `0.0312`, `1.32`, `98765`, `1.23e+08`."""
    return f"{value:.0f}" if 1000 <= abs(value) < _LARGE else f"{value:#.3g}".rstrip(".")
