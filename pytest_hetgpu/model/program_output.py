"""What foreign programs print, as nouns: rows, readings, and what an exit code says (`readers/` make them).

Units: seconds, GB/s (1e9 bytes a second), 1/s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind


class Quantity(NamedTuple):
    """A finite number of at least 0; `unit` is s, GB/s (1e9 bytes a second), 1/s, % or what the user called it."""

    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One row: `figures` are what the program printed of a point, by metric, and nothing that was computed.

    `latency` is the time of one operation, mean over iterations and ranks (half of a round trip, where two ranks play
    ping-pong), `algbw` and `busbw` are as `metrics` defines them. `bandwidth` is that of one direction with several
    messages under way, `bidirectional_bandwidth` that of both, `aggregate_bandwidth` that of several pairs: none of
    them is an algbw. `overhead` is a sender's time for a message. `wrong` counts wrong elements, at least; None:
    unchecked.
    """

    operation: str
    point: MessagePoint
    ranks: int | None
    figures: Mapping[str, Quantity]
    iterations: int | None = None
    wrong: int | None = None
    line: int = 0

    @property
    def seconds(self) -> float | None:
        """The time of one operation, where the program prints it."""
        return self.figures["latency"].value if "latency" in self.figures else None


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """All that one output gave. `complaints` say what is wrong with the output, each in one line.

    `failed` are the program's own words on what failed; `unsaid` says that those on success are not there, which says
    something only of a program that came to its end; `slow` that it missed the bandwidth it was told to reach.
    `memory` is the kind of memory the data was in, "" for not said; `versions` are what it says of other libraries.
    """

    tool: str = ""
    version: str = ""
    rows: tuple[BenchmarkRow, ...] = ()
    complaints: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    slow: bool = False
    memory: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    unsaid: str = ""

    @property
    def wrong(self) -> tuple[BenchmarkRow, ...]:
        """Rows whose data failed the check."""
        return tuple(row for row in self.rows if row.wrong)

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations of the rows, each once."""
        return tuple(dict.fromkeys(row.operation for row in self.rows))

    def missing(self, points: Iterable[MessagePoint]) -> tuple[MessagePoint, ...]:
        """Which of the points that are owed no row measures."""
        found = {row.point for row in self.rows if row.figures}
        return tuple(point for point in points if point not in found)

    def unchecked(self, points: Iterable[MessagePoint]) -> tuple[MessagePoint, ...]:
        """Which of the points that are owed no row verified, right or wrong."""
        found = {row.point for row in self.rows if row.wrong is not None}
        return tuple(point for point in points if point not in found)

    def basis(self, row: BenchmarkRow) -> tuple[object, ...]:
        """What must be equal before figures of two rows are compared."""
        point = row.point
        return (self.tool, self.version, self.memory, row.operation, row.ranks, point.dtype, point.place)


class ExitMeaning(NamedTuple):
    """What a program's exit code says."""

    kind: Kind
    why: str
