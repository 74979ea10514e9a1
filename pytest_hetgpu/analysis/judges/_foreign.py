"""What a foreign program still owes: the words of its reader, held against what was asked."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.job import Requirements
from pytest_hetgpu.model.outcome import ProgramOutput
from pytest_hetgpu.model.program_output import BenchmarkRow
from pytest_hetgpu.model.records import MessagePoint


def lacks(demand: Requirements, foreign: ExternalProgram, told: ProgramOutput) -> Iterator[str]:
    """What was not measured, what was not verified, and what is wrong with the output itself."""
    rows = [row for row in told.result.rows if row.ranks in (None, foreign.ranks) or foreign.ranks is None]
    measured = [row.point for row in rows if row.figures]
    verified = [row.point for row in rows if row.wrong is not None]
    unmeasured = [point for point in demand.points if not _among(point, measured)]
    unverified = [point for point in demand.points if not _among(point, verified)]
    if unmeasured:
        yield f"{told.tool} measured nothing at {_some(unmeasured)}"
    if foreign.check and unverified:
        yield f"{told.tool} verified nothing at {_some(unverified)}"
    yield from (f"{told.tool}: {complaint}" for complaint in told.result.warnings)


def other_world(foreign: ExternalProgram, told: ProgramOutput) -> BenchmarkRow | None:
    """The first row that was measured with another number of ranks than was asked for."""
    asked = foreign.ranks
    return next((row for row in told.result.rows if asked and row.ranks not in (None, asked)), None)


def _among(owed: MessagePoint, found: list[MessagePoint]) -> bool:
    """Whether a point was found; one whose type nobody asked for is found with any."""
    return any(owed == (point if owed.dtype else MessagePoint(point.size, "", point.place)) for point in found)


def _some(points: list[MessagePoint], limit: int = 5) -> str:
    more = f" and {len(points) - limit} more" if len(points) > limit else ""
    return f"point{'s' * (len(points) > 1)} {', '.join(map(str, points[:limit]))}{more}"
