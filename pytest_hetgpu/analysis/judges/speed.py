"""Whether the run was as fast as the matrix says, and as it was before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_hetgpu.analysis.judges._pace import Assessment, Pace, State, assess, times
from pytest_hetgpu.analysis.judges.base import Case, Force, Judge, Opinion, explanation, failed, placed
from pytest_hetgpu.model.job import Requirements
from pytest_hetgpu.model.metrics import from_seconds
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sample import Sample
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.model.thresholds import BANDWIDTHS, Threshold
from pytest_hetgpu.model.verdict import Kind

_OTHERS = 8


class Speed(Judge):
    """Slow is what is slower at the same points in every launch of the cell; it decides where nothing else is wrong.

    What could not be compared has not passed.
    """

    name = "speed"

    def opinions(self, case: Case) -> Iterator[Opinion]:
        if not case.job.demand.limits or failed(case):
            return
        yield from self._launched_again(case)
        case = _comparable(case)
        found = _assessed(case)
        if found.state is State.SLOW:
            yield self.says(Kind.SLOW, _in_words(found, case), Force.LEAST)
        elif found.state is State.DOUBTFUL:
            why = f"seems slow: {_in_words(found, case)}; it was not launched again to make sure"
            yield self.says(Kind.UNKNOWN, why, Force.LEAST)
        lacks = _lacking(case.job.demand, owed=True)
        if lacks:
            yield self.says(Kind.UNKNOWN, lacks, Force.LEAST)

    def _launched_again(self, case: Case) -> Iterator[Opinion]:
        """A further launch that failed is a failure of the cell."""
        for again in case.further:
            if not failed(again):
                continue
            cause = explanation(again)
            kind = Kind.TIMEOUT if again.result.timed_out else cause.kind if cause else Kind.ERROR
            ended = again.result
            how = f"stopped after {ended.seconds:.0f} s" if ended.timed_out else f"exit code {ended.returncode}"
            what = placed(cause) if cause else how
            yield self.says(kind, f"it seemed slow, was launched again, and then failed: {what}", signature=cause)


def unsettled(case: Case) -> bool:
    """Whether another launch must tell if the cell is slow."""
    if not case.job.demand.limits or any(map(failed, (case, *case.further))):
        return False
    return _assessed(_comparable(case)).state is State.DOUBTFUL


def notes(case: Case) -> Iterator[str]:
    """What is to be said of a cell's speed though it decides nothing."""
    if not case.job.demand.limits or failed(case):
        return
    case = _comparable(case)
    demand, found = case.job.demand, _assessed(case)
    if found.state is State.UNSURE:
        yield f"may be slow: {_in_words(found, case)}; it scatters too much to tell"
    if found.state is State.FINE and case.further:
        first = assess(demand, [case.evidence.rows])
        yield f"seemed slow: {_in_words(first, case)}; launched again it was not"
    lacks = _lacking(demand, owed=False)
    if lacks:
        yield lacks


def _comparable(case: Case) -> Case:
    """The case whose limits say which of them this run, as it came out, cannot be held against."""
    demand, told_of = case.job.demand, case.evidence.program_output
    tool, timed = told_of.tool if told_of else "", times(demand, case.evidence.rows)

    def settled(point: MessagePoint, limit: Threshold) -> Threshold:
        if tool and limit.tool not in ("", tool):
            return replace(limit, seconds=(), lacks=f"tool {limit.tool} before and {tool} after")
        return replace(limit, seconds=(), lacks="this run has no time of it") if point not in timed else limit

    limits = {
        point: tuple(settled(point, limit) if limit.seconds else limit for limit in found)
        for point, found in demand.limits.items()
    }
    return replace(case, job=replace(case.job, demand=replace(demand, limits=limits)))


def _assessed(case: Case) -> Assessment:
    return assess(case.job.demand, [one.evidence.rows for one in (case, *case.further)])


def _in_words(found: Assessment, case: Case) -> str:
    """The surest point with what was expected and what came, and how sure it is; then the others."""
    demand = case.job.demand
    first, *others = found.beyond
    sure = f"{len(first.kept)} repeats in {found.launches} launch{'es' * (found.launches > 1)}"
    scatter = f"spread {_spread(first.got):.0%}".replace("%", " %")
    parts = [f"{_compared(first, demand)}; {sure}, {scatter}, p={found.chance:.2g}"]
    if others:
        more = f" and {len(others) - _OTHERS} more" if len(others) > _OTHERS else ""
        parts.append(f"also {', '.join(_short(pace) for pace in others[:_OTHERS])}{more}")
    changed = _changed(case)
    if changed:
        parts.append(f"since then {', '.join(changed)}")
    return "; ".join(parts)


def _spread(got: Sample | None) -> float:
    return (got.high - got.low) / got.middle if got else 0.0


def _compared(pace: Pace, demand: Requirements) -> str:
    """`1M float32: busbw 0.8 GB/s, expected at least 0.9 (1 -10 %) from baseline 20261120-020006-02b3`."""
    metric, limit = pace.limit.metric, pace.limit
    assert pace.got
    assert pace.expected
    times = (pace.got.middle, limit.worst(pace.expected.middle), pace.expected.middle)
    got, bound, middle = (
        f"{from_seconds(metric, time, demand.operation, pace.point.size, demand.row_ranks):.3g}" for time in times
    )
    more = metric in BANDWIDTHS
    unit, least, sign = ("GB/s", "at least", "-") if more else ("us", "at most", "+")
    allowed = f" ({middle} {sign}{limit.tolerance * 100:g} %)" if limit.tolerance else ""
    return f"{_where(pace.point)}{metric} {got} {unit}, expected {least} {bound}{allowed} from {limit.source}"


def _short(pace: Pace) -> str:
    """`2M float32 (-19 %)`."""
    change = 1 / pace.ratio - 1 if pace.limit.metric in BANDWIDTHS else pace.ratio - 1
    return f"{shown(pace.point) or pace.limit.metric} ({change * 100:+.0f} %)"


def _where(point: MessagePoint) -> str:
    return f"{shown(point)}: " if point.size else ""


def shown(point: MessagePoint) -> str:
    """`1M float32 in place`; nothing of what moves no data."""
    words = (show_size(point.size), point.dtype, "in place" if point.place else "")
    return " ".join(filter(None, words)) if point.size else ""


def _changed(case: Case) -> list[str]:
    """Versions and settings that are not what they were: `ucx 1.18.0 is 1.20.0`."""
    before, now = case.job.demand.before, {**case.job.demand.facts, **case.evidence.versions}
    return [f"{name} {was} became {now[name]}" for name, was in before.items() if now.get(name, was) != was]


def _lacking(demand: Requirements, *, owed: bool) -> str:
    """What could not be compared and why, each reason once; "" where all could."""
    reasons: dict[str, list[str]] = {}
    for point, limits in demand.limits.items():
        for limit in limits:
            if limit.lacks and limit.owed is owed:
                places = reasons.setdefault(f"{limit.source}: {limit.lacks}", [])
                places.append(shown(point))
    return "; ".join(f"not compared{_at(places)} with {why}" for why, places in reasons.items())


def _at(places: Sequence[str]) -> str:
    named = list(filter(None, places))
    more = f" and {len(named) - _OTHERS} more" if len(named) > _OTHERS else ""
    return f" at {', '.join(named[:_OTHERS])}{more}" if named else ""
