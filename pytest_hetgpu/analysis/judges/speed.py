"""Judge of speed: whether the run was as fast as the matrix requires, and as fast as before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_hetgpu.analysis.judges._slowdown import Assessment, SpeedComparison, SpeedState, assess, times
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
from pytest_hetgpu.model.metrics import from_seconds
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sample import Sample
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.model.thresholds import BANDWIDTHS, Threshold
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
        first = assess(demand, [run.evidence.rows])
        yield f"seemed slow: {_in_words(first, run)}; launched again it was not"
    lacks = _lacking(demand, owed=False)
    if lacks:
        yield lacks


def _comparable(run: FinishedRun) -> FinishedRun:
    """Return the run with limits marked that its actual result cannot be compared with."""
    demand, told_of = run.job.demand, run.evidence.program
    tool, timed = told_of.tool if told_of else "", times(demand, run.evidence.rows)

    def settled(point: MessagePoint, limit: Threshold) -> Threshold:
        if tool and limit.tool not in ("", tool):
            return replace(limit, seconds=(), lacks=f"tool {limit.tool} before and {tool} after")
        return replace(limit, seconds=(), lacks="this run has no time of it") if point not in timed else limit

    limits = {
        point: tuple(settled(point, limit) if limit.seconds else limit for limit in found)
        for point, found in demand.limits.items()
    }
    return replace(run, job=replace(run.job, demand=replace(demand, limits=limits)))


def _assessed(run: FinishedRun) -> Assessment:
    return assess(run.job.demand, [one.evidence.rows for one in (run, *run.further)])


def _in_words(found: Assessment, run: FinishedRun) -> str:
    """Describe the most significant point with expectation, result and certainty; then the others."""
    demand = run.job.demand
    first, *others = found.beyond
    sure = f"{len(first.kept)} repeats in {found.launches} launch{'es' * (found.launches > 1)}"
    scatter = f"spread {_spread(first.got):.0%}".replace("%", " %")
    parts = [f"{_compared(first, demand)}; {sure}, {scatter}, p={found.chance:.2g}"]
    if others:
        more = f" and {len(others) - _OTHERS} more" if len(others) > _OTHERS else ""
        parts.append(f"also {', '.join(_short(comparison) for comparison in others[:_OTHERS])}{more}")
    changed = _changed(run)
    if changed:
        parts.append(f"since then {', '.join(changed)}")
    return "; ".join(parts)


def _spread(got: Sample | None) -> float:
    return (got.high - got.low) / got.middle if got else 0.0


def _compared(comparison: SpeedComparison, demand: Requirements) -> str:
    """Describe a point in full.

    Example: `1M float32: busbw 0.8 GB/s, expected at least 0.9 (1 -10 %) from baseline 20261120-020006-02b3`.
    """
    metric, limit = comparison.limit.metric, comparison.limit
    assert comparison.got
    assert comparison.expected
    times = (comparison.got.middle, limit.worst(comparison.expected.middle), comparison.expected.middle)
    got, bound, middle = (
        f"{from_seconds(metric, time, demand.operation, comparison.point.size, demand.row_ranks):.3g}" for time in times
    )
    more = metric in BANDWIDTHS
    unit, least, sign = ("GB/s", "at least", "-") if more else ("us", "at most", "+")
    allowed = f" ({middle} {sign}{limit.tolerance * 100:g} %)" if limit.tolerance else ""
    return f"{_where(comparison.point)}{metric} {got} {unit}, expected {least} {bound}{allowed} from {limit.source}"


def _short(comparison: SpeedComparison) -> str:
    """Describe a point in short: `2M float32 (-19 %)`."""
    change = 1 / comparison.ratio - 1 if comparison.limit.metric in BANDWIDTHS else comparison.ratio - 1
    return f"{describe_point(comparison.point) or comparison.limit.metric} ({change * 100:+.0f} %)"


def _where(point: MessagePoint) -> str:
    return f"{describe_point(point)}: " if point.size else ""


def describe_point(point: MessagePoint) -> str:
    """Describe a point: `1M float32 in place`; "" for an operation that moves no data."""
    words = (show_size(point.size), point.dtype, "in place" if point.place else "")
    return " ".join(filter(None, words)) if point.size else ""


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
