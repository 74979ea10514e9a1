"""Missing results of an external program: its parsed output against the request."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.job import Requirements
from pytest_hetgpu.model.outcome import ProgramOutput
from pytest_hetgpu.model.program_output import BenchmarkRow
from pytest_hetgpu.model.records import MessagePoint


def missing_results(demand: Requirements, foreign: ExternalProgram, told: ProgramOutput) -> Iterator[str]:
    """Yield points that were not measured or not verified, and complaints about the output itself."""
    rows = [row for row in told.benchmark.rows if row.ranks in (None, foreign.ranks) or foreign.ranks is None]
    measured = [row.point for row in rows if row.figures]
    zero = [row.point for row in rows if _is_zero(row)]
    verified = [row.point for row in rows if row.wrong is not None]
    unmeasured = [point for point in demand.points if not _among(point, measured)]
    unverified = [point for point in demand.points if not _among(point, verified)]
    if unmeasured:
        yield f"{told.tool} measured nothing at {_some(unmeasured)}"
    if zero:
        yield f"{told.tool} measured 0 at {_some(zero)}, which is no time and no rate"
    if foreign.check and unverified:
        yield f"{told.tool} verified nothing at {_some(unverified)}"
    yield from (f"{told.tool}: {warning}" for warning in told.benchmark.warnings)


def verifies(foreign: ExternalProgram) -> bool:
    """Return whether its output must show that results are right: by checks, or by its message of success."""
    return foreign.check or not {"success", "json_success", "tests"}.isdisjoint(json.loads(foreign.settings))


def wrong_rank_count(foreign: ExternalProgram, told: ProgramOutput) -> BenchmarkRow | None:
    """Return the first row that was measured with another number of ranks than requested."""
    asked = foreign.ranks
    return next((row for row in told.benchmark.rows if asked and row.ranks not in (None, asked)), None)


def _is_zero(row: BenchmarkRow) -> bool:
    """Return whether all times and rates of a row are 0. One of them may be 0 by rounding; other figures may be 0."""
    told = [value for value, unit in row.figures.values() if unit == "s" or unit.endswith("/s")]
    return bool(told) and not any(told)


def _among(owed: MessagePoint, found: list[MessagePoint]) -> bool:
    """Return whether a point was found; a point without a type matches any type."""
    return any(owed == (point if owed.dtype else MessagePoint(point.size, "", point.place)) for point in found)


def _some(points: list[MessagePoint], limit: int = 5) -> str:
    more = f" and {len(points) - limit} more" if len(points) > limit else ""
    return f"point{'s' * (len(points) > 1)} {', '.join(map(str, points[:limit]))}{more}"
