"""Output of programs of other projects as plain data: rows, results and exit codes. Output parsers make them.

Units: seconds, GB/s (1e9 bytes per second), 1/s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_hetgpu.model.old_spellings import Renamed, old_arguments
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind

MOST_NAMES = 200
BAIL_OUT = "Bail out!"
"""Beginning of the line by which a suite gives up in the Test Anything Protocol."""
_SHOWN = 3


class OutputLine(NamedTuple):
    """A line of a program's output, whose number counts from 1.

    Attributes:
        text: the line as a terminal shows it; None for a debug message of a library.
        rank: the rank that printed it; None for a launcher's own line, and if the launcher puts no labels.
        hidden: text that a terminal does not show: overwritten, or that of a debug message. It may hold a failure.

    """

    text: str | None
    number: int = 0
    rank: int | None = None
    hidden: str = ""


class Quantity(NamedTuple):
    """A finite number of at least 0.

    `unit` is s, GB/s (1e9 bytes per second), 1/s, %, or the user's own name.
    """

    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One row of a benchmark's output. `figures` are printed quantities of a point by metric, none of them computed.

    - `latency`: time of one operation, mean over iterations and ranks. It is half of a round trip if two ranks play
      ping-pong.
    - `algbw`, `busbw`: as `metrics` defines them.
    - `bandwidth`: one direction with several messages under way. It is not an algbw, nor are the next two.
    - `bidirectional_bandwidth`: both directions. `aggregate_bandwidth`: several pairs.
    - `overhead`: a sender's time for a message.

    `wrong` is the least number of wrong elements; None: unchecked.
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
        """Return the time of one operation, None if the program does not print it."""
        return self.figures["latency"].value if "latency" in self.figures else None


@old_arguments(complaints="warnings", unsaid="missing_success")
@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """The result of one benchmark's output.

    Attributes:
        warnings: errors in the output, one line each.
        failed: the program's own lines about failures.
        slow: it missed the bandwidth that it had to reach.
        memory: kind of memory that held the data, "" if not printed.
        versions: printed versions of libraries.
        missing_success: missing message of success; significant only if the program ended by itself.
        suite: result of the program's own tests.
        refuted: the text by which the program itself reports, on any rank, that its results are wrong.
        proof: the ranks that showed success, if it was not shown by all: `1 of 2 ranks`.
        unsearched: the part of the output that was not searched, and may hold a failure; "" if all was.
        unsupported: what the command asks for and this version of the program lacks: `pingpong`, `option -V`.
        own: metrics that the user named: `lower`, `higher`, or "" if the unit decides. They keep their unit.

    """

    tool: str = ""
    version: str = ""
    rows: tuple[BenchmarkRow, ...] = ()
    warnings: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    slow: bool = False
    memory: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    missing_success: str = ""
    suite: SuiteResult | None = None
    refuted: str = ""
    proof: str = ""
    unsearched: str = ""
    unsupported: str = ""
    own: Mapping[str, str] = field(default_factory=dict)
    complaints = Renamed("warnings")
    unsaid = Renamed("missing_success")
    basis = Renamed("comparison_key")

    @property
    def wrong(self) -> tuple[BenchmarkRow, ...]:
        """Return the rows whose data failed the check."""
        return tuple(row for row in self.rows if row.wrong)

    @property
    def operations(self) -> tuple[str, ...]:
        """Return the operations of the rows, each once."""
        return tuple(dict.fromkeys(row.operation for row in self.rows))

    def missing(self, points: Iterable[MessagePoint]) -> tuple[MessagePoint, ...]:
        """Return the required points that no row measures."""
        found = {row.point for row in self.rows if row.figures}
        return tuple(point for point in points if point not in found)

    def unchecked(self, points: Iterable[MessagePoint]) -> tuple[MessagePoint, ...]:
        """Return the required points that no row verified, right or wrong."""
        found = {row.point for row in self.rows if row.wrong is not None}
        return tuple(point for point in points if point not in found)

    def comparison_key(self, row: BenchmarkRow) -> tuple[object, ...]:
        """Return the values that must be equal before two rows can be compared."""
        point = row.point
        return (self.tool, self.version, self.memory, row.operation, row.ranks, point.dtype, point.place)


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The number of `tests` that a suite has, skipped ones included, and the names of those that failed on any rank.

    `more` counts failed tests beyond the first `MOST_NAMES`, `missing` those that were planned and did not run.
    `whole`: the suite reached its end.
    """

    tests: int
    failed: tuple[str, ...] = ()
    skipped: int = 0
    more: int = 0
    missing: int = 0
    whole: bool = True

    @property
    def failed_tests(self) -> bool:
        """Return whether a test failed; `failed` also has the line by which a suite gave up."""
        return any(not name.startswith(BAIL_OUT) for name in self.failed)

    @property
    def failure_key(self) -> str:
        """Return a name that is equal for equal failed tests: `failed@test_io.TestFile.testRead and 4 more`."""
        if not self.failed:
            return ""
        more = len(self.failed) + self.more - 1
        return f"failed@{min(self.failed)}{f' and {more} more' if more else ''}"

    def __str__(self) -> str:
        if self.missing and not self.failed:
            return f"{self.missing} of {self.tests} planned tests did not run"
        if not self.failed:
            skipped = f", {self.skipped} skipped" if self.skipped else ""
            passed = self.tests - self.skipped
            return f"{passed} test{'s' * (passed != 1)} passed{skipped}"
        number = len(self.failed) + self.more
        further = f" and {number - _SHOWN} more" if number > _SHOWN else ""
        return f"{number} of {self.tests} tests failed: {', '.join(self.failed[:_SHOWN])}{further}"


class ExitMeaning(NamedTuple):
    """The meaning of a program's exit code."""

    kind: Kind
    why: str
