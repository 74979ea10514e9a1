"""Judge of speed: whether the run was as fast as the matrix requires, and as fast as before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.analysis.judges._slowdown import Assessment, SpeedComparison, SpeedState, assess, by_metric
from pytest_hetgpu.analysis.judges.base import (
    FinishedRun,
    Judge,
    Precedence,
    RatedFinding,
    cause_of,
    describe_signature,
    has_failed,
)
from pytest_hetgpu.model.job import Requirements
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.model.metrics import numbers
from pytest_hetgpu.model.quantities import HIGHER, better, no_direction
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.sample import Sample
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.model.thresholds import EVERY, Threshold
from pytest_hetgpu.model.verdict import Kind

_OTHERS = 8


class SpeedJudge(Judge):
    """A cell is slow if the same points are slow in every launch; this decides only if nothing else is wrong.

    A point that could not be compared has not passed.
    """

    name = "speed"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        if not run.job.demand.limits or has_failed(run):
            return
        yield from self._launched_again(run)
        run = _comparable(run)
        found = _assessed(run)
        if found.state is SpeedState.SLOW:
            yield self.finding(Kind.SLOW, _in_words(found, run), Precedence.LOWEST)
        elif found.state is SpeedState.DOUBTFUL:
            why = f"seems slow: {_in_words(found, run)}; it was not launched again to make sure"
            yield self.finding(Kind.UNKNOWN, why, Precedence.LOWEST)
        lacks = _lacking(run.job.demand, owed=True)
        if lacks:
            yield self.finding(Kind.UNKNOWN, lacks, Precedence.LOWEST)

    def _launched_again(self, run: FinishedRun) -> Iterator[RatedFinding]:
        """Yield the failures of further launches, which are failures of the cell."""
        for again in run.further:
            if not has_failed(again):
                continue
            cause = cause_of(again)
            kind = Kind.TIMEOUT if again.result.timed_out else cause.kind if cause else Kind.ERROR
            ended = again.result
            how = f"stopped after {ended.seconds:.0f} s" if ended.timed_out else f"exit code {ended.returncode}"
            what = describe_signature(cause) if cause else how
            yield self.finding(kind, f"it seemed slow, was launched again, and then failed: {what}", signature=cause)


def inconclusive(run: FinishedRun) -> bool:
    """Return whether another launch is needed to decide if the cell is slow."""
    if not run.job.demand.limits or any(map(has_failed, (run, *run.further))):
        return False
    return _assessed(_comparable(run)).state is SpeedState.DOUBTFUL


def notes(run: FinishedRun) -> Iterator[str]:
    """Yield notes on a cell's speed that decide nothing."""
    if not run.job.demand.limits or has_failed(run):
        return
    run = _comparable(run)
    demand, found = run.job.demand, _assessed(run)
    if found.state is SpeedState.UNSURE:
        yield f"may be slow: {_in_words(found, run)}; it scatters too much to decide"
    if found.state is SpeedState.FINE and run.further:
        first = assess(demand, [numbers(run.evidence)])
        yield f"seemed slow: {_in_words(first, run)}; launched again it was not"
    lacks = _lacking(demand, owed=False)
    if lacks:
        yield lacks


def _comparable(run: FinishedRun) -> FinishedRun:
    """Return the run with limits at the points that it measured, each with what its result cannot be compared with."""
    demand, told_of = run.job.demand, run.evidence.program
    measured = numbers(run.evidence)
    found = by_metric(demand, measured)
    tool = told_of.tool if told_of else ""
    limits: dict[MessagePoint, tuple[Threshold, ...]] = {}
    for point, several in _placed(demand.limits, measured):
        limits[point] = (*limits.get(point, ()), *(_settled(limit, point, found, tool) for limit in several))
    return replace(run, job=replace(run.job, demand=replace(demand, limits=limits)))


def _placed(
    limits: Mapping[MessagePoint, Sequence[Threshold]], measured: Iterable[Measurement]
) -> Iterator[tuple[MessagePoint, Sequence[Threshold]]]:
    """Yield limits by point; those of every point at each point at which their metric was measured."""
    yield from ((point, several) for point, several in limits.items() if point != EVERY)
    found = [(one.metric, one.point) for one in measured]
    for limit in limits.get(EVERY, ()):
        own = {point for point, others in limits.items() if any(_alike(limit, other) for other in others)}
        points = [at for metric, at in found if metric == limit.metric and at.size >= limit.min_size]
        if points:
            yield from ((at, (limit,)) for at in points if replace(at, dtype="") not in own)
        elif found or limit.owed:
            yield EVERY, (limit,)


def _alike(one: Threshold, other: Threshold) -> bool:
    return (one.metric, one.source) == (other.metric, other.source)


def _settled(
    limit: Threshold, point: MessagePoint, measured: Mapping[tuple[str, MessagePoint], Measurement], tool: str
) -> Threshold:
    """Return a limit with its unit and direction, or with why the result cannot be compared with it."""
    if limit.lacks:
        return limit
    one = measured.get((limit.metric, point))
    lacks = "" if limit.values else "it is of an earlier release of pytest-hetgpu"
    if tool and limit.tool not in ("", tool):
        lacks = f"tool {limit.tool} before and {tool} after"
    elif one is None:
        there = list(dict.fromkeys(metric for metric, _ in measured))
        lacks = f"this run has no {limit.metric} there" + (f" {known(limit.metric, there)}" if point == EVERY else "")
    elif limit.unit not in ("", one.unit):
        lacks = f"its unit is {limit.unit}, and that of this run {one.unit or 'unknown'}"
    elif not (way := limit.better or better(one)):
        lacks = no_direction(limit.metric, one.unit)
    else:
        return replace(limit, unit=one.unit, better=way, lacks=lacks)
    return replace(limit, values=(), lacks=lacks)


def _assessed(run: FinishedRun) -> Assessment:
    return assess(run.job.demand, [numbers(one.evidence) for one in (run, *run.further)])


def _in_words(found: Assessment, run: FinishedRun) -> str:
    """Describe the most significant point with expectation, result and certainty; then the others."""
    first, *others = found.beyond
    sure = f"{len(first.kept)} repeats in {found.launches} launch{'es' * (found.launches > 1)}"
    scatter = f"spread {_spread(first.got):.0%}".replace("%", " %")
    parts = [f"{_compared(first)}; {sure}, {scatter}, p={found.chance:.2g}"]
    if others:
        more = f" and {len(others) - _OTHERS} more" if len(others) > _OTHERS else ""
        parts.append(f"also {', '.join(_short(comparison) for comparison in others[:_OTHERS])}{more}")
    changed = _changed(run)
    if changed:
        parts.append(f"since then {', '.join(changed)}")
    return "; ".join(parts)


def _spread(got: Sample | None) -> float:
    return (got.high - got.low) / got.middle if got else 0.0


def _compared(comparison: SpeedComparison) -> str:
    """Describe a point in full.

    Example: `1M float32: busbw 0.8 GB/s, expected at least 0.9 (1 -10 %) from baseline 20261120-020006-02b3`.
    """
    limit = comparison.limit
    assert comparison.got
    assert comparison.expected
    costs = (comparison.got.middle, limit.worst(comparison.expected.middle), comparison.expected.middle)
    got, bound, middle = (f"{limit.value(cost):.3g}" for cost in costs)
    least, sign = ("at least", "-") if limit.better == HIGHER else ("at most", "+")
    allowed = f" ({middle} {sign}{limit.tolerance * 100:g} %)" if limit.tolerance else ""
    measured = f"{limit.metric} {got} {limit.unit}".rstrip()
    return f"{_where(comparison.point)}{measured}, expected {least} {bound}{allowed} from {limit.source}"


def _short(comparison: SpeedComparison) -> str:
    """Describe a point in short: `2M float32 (-19 %)`."""
    change = (1 / comparison.ratio if comparison.limit.better == HIGHER else comparison.ratio) - 1
    return f"{describe_point(comparison.point) or comparison.limit.metric} ({change * 100:+.0f} %)"


def _where(point: MessagePoint) -> str:
    return f"{describe_point(point)}: " if point.size > 0 else ""


def describe_point(point: MessagePoint) -> str:
    """Describe a point: `1M float32 in place`; "" for an operation that moves no data."""
    words = (show_size(point.size), point.dtype, "in place" if point.place else "")
    return " ".join(filter(None, words)) if point.size > 0 else ""


def _changed(run: FinishedRun) -> list[str]:
    """Return changed versions and settings: `ucx 1.18.0 became 1.20.0`."""
    before, now = run.job.demand.before, {**run.job.demand.facts, **run.evidence.versions}
    return [f"{name} {was} became {now[name]}" for name, was in before.items() if now.get(name, was) != was]


def _lacking(demand: Requirements, *, owed: bool) -> str:
    """Describe the points that could not be compared, each reason once; "" if all could."""
    reasons: dict[str, list[str]] = {}
    for point, limits in demand.limits.items():
        for limit in limits:
            if limit.lacks and limit.owed is owed:
                places = reasons.setdefault(f"{limit.source}: {limit.lacks}", [])
                places.append(describe_point(point))
    return "; ".join(f"not compared{_at(places)} with {why}" for why, places in reasons.items())


def _at(places: Sequence[str]) -> str:
    named = list(filter(None, places))
    more = f" and {len(named) - _OTHERS} more" if len(named) > _OTHERS else ""
    return f" at {', '.join(named[:_OTHERS])}{more}" if named else ""
