"""What a reader is: fed with the lines that a foreign program printed, it gives what they measure and check.

A workload that runs a foreign program makes an `Asked`: the command's tokens, the name of the reader (its file in this
folder), and the points that it owes. The reader is fed with the run's output, line by line and without what a launcher
puts before them, and `finish` gives a `Reading`. `Reading.missing` and `Reading.unchecked` say what is still owed.
"""

from __future__ import annotations

import abc
import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from pytest_hetgpu.extensions.output_patterns import ReaderSettings
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.model import metrics
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, ExitMeaning
from pytest_hetgpu.model.records import Measurement, MessagePoint, Row
from pytest_hetgpu.model.verdict import Kind

MOST_ROWS = 100_000
LONGEST_LINE = 4096
_MOST_COMPLAINTS = 50
_LONGEST_QUOTE = 80
_NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ParseRequest:
    """What a workload asks of a foreign program, and how its output is read.

    `argv` are the program and its options; `reader` is the reader's name. `points` are owed: their sizes are those of
    the bandwidth definitions (`metrics`), whatever the program counts. `ranks` are those of one job; `operation` is
    needed where neither the output nor the command names it.
    """

    argv: tuple[str, ...] = ()
    reader: str = ""
    points: tuple[MessagePoint, ...] = ()
    ranks: int | None = None
    operation: str = ""

    @property
    def place(self) -> str:
        """`in` where all that is owed is in place: what a program is told, and may not print."""
        return "in" if self.points and all(point.place == "in" for point in self.points) else ""

    def option(self, *names: str) -> str:
        """The value of an option in `argv` (`-s 8`, `-s8`, `--size=8`), "" where it is not given."""
        for index, token in enumerate(self.argv):
            for name in names:
                if token == name:
                    return self.argv[index + 1] if index + 1 < len(self.argv) else ""
                glued = f"{name}=" if name.startswith("--") else name
                if token.startswith(glued) and not (token.startswith("--") and not name.startswith("--")):
                    return token[len(glued) :]
        return ""


def operation_of(foreign: ExternalProgram) -> str:
    """The operation that the rows of a foreign program will be of."""
    kind = find("readers", foreign.reader, OutputParser)  # type: ignore[type-abstract]
    return kind.measures(ParseRequest(foreign.argv, foreign.reader, ranks=foreign.ranks, operation=foreign.operation))


class ParseWarnings:
    """Complaints, each said once with the first line it holds for and how many more there were."""

    def __init__(self) -> None:
        self._found: dict[str, list[int]] = {}

    def add(self, what: str, line: int = 0) -> None:
        """One complaint, of a line or (0) of the whole output."""
        if what in self._found:
            self._found[what][1] += 1
        elif len(self._found) < _MOST_COMPLAINTS:
            self._found[what] = [line, 0]

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them, in the order in which they arose."""
        return tuple(f"{what}{_where(*found)}" for what, found in self._found.items())


def _where(line: int, more: int) -> str:
    if not line:
        return ""
    return f" (line {line}{f' and {more} more' if more else ''})"


class OutputParser(abc.ABC):
    """A fresh one for each output. It never raises, whatever the lines are, and keeps at most `MOST_ROWS` rows."""

    Settings: ClassVar[type[ReaderSettings]] = ReaderSettings
    tool: ClassVar[str]
    """The program family's name, where the output does not tell which of several it is."""

    def __init__(self, asked: ParseRequest | None = None, settings: ReaderSettings | None = None) -> None:
        self.request = asked or ParseRequest()
        self.settings = settings or self.Settings()
        self.notes = ParseWarnings()
        self._rows: list[BenchmarkRow] = []
        self._orphan = 0

    @classmethod
    def measures(cls, asked: ParseRequest) -> str:
        """The operation that rows of such a command will be of, as far as the command tells."""
        return asked.operation or cls.tool

    @abc.abstractmethod
    def feed(self, line: str, number: int = 0) -> None:
        """Take one line without its end; `number` counts from 1."""

    @abc.abstractmethod
    def finish(self) -> BenchmarkResult:
        """What was read, once there are no more lines."""

    @staticmethod
    def meaning_of_exit(code: int, reading: BenchmarkResult) -> ExitMeaning | None:
        """What the exit code says, with what was read; None where it says nothing bad."""
        if reading.wrong or (reading.failed and not reading.slow):
            return ExitMeaning(Kind.WRONG_RESULT, reading.failed[0] if reading.failed else "data failed its check")
        return ExitMeaning(Kind.ERROR, f"exit code {code}") if code else None

    @classmethod
    def meaning_of_stop(cls, reading: BenchmarkResult) -> ExitMeaning | None:
        """What was read of a program that did not come to its end says."""
        return cls.meaning_of_exit(0, reading)

    @property
    def rows(self) -> tuple[BenchmarkRow, ...]:
        """The rows so far."""
        return tuple(self._rows)

    def add(self, row: BenchmarkRow) -> None:
        """Keep a row."""
        if len(self._rows) < MOST_ROWS:
            self._rows.append(row)
        else:
            self.notes.add(f"more than {MOST_ROWS:,} rows: the rest is not read", row.line)

    def figure(self, name: str, token: str, line: int, scale: float = 1.0) -> float | None:
        """A number as printed, times `scale`; None, with a complaint, where it is none, negative, or not finite."""
        value = number(token)
        if value is None:
            self.notes.add(f"{name} is {quoted(token)}, no number", line)
        elif not math.isfinite(value * scale):
            self.notes.add(f"{name} is not finite", line)
        elif value < 0:
            self.notes.add(f"{name} is negative", line)
        else:
            return value * scale
        return None

    def note_headless_row(self, line: int) -> None:
        """What looks like a row, where no header was seen yet: a complaint only where none comes."""
        self._orphan = self._orphan or line or 1

    def require_rows(self, header: int) -> None:
        """Complain where a table's header was seen in line `header` (0: none was), and nothing was read below it."""
        if header and not self._rows:
            self.notes.add("a table's header, and no row that can be read", header)
        elif not self._rows and self._orphan:
            self.notes.add("rows without a header above them", self._orphan)
        elif not self._rows:
            self.notes.add("no table: the program measured nothing")


def number(token: str) -> float | None:
    """A number as C and Python print them, `nan` and `inf` among them; None where it is none."""
    if _NUMBER.fullmatch(token):
        return float(token)
    bare = token.lower().lstrip("+-")
    if bare in ("nan", "inf", "infinity"):
        return float("nan" if bare == "nan" else "-inf" if token.startswith("-") else "inf")
    return None


def whole(token: str) -> int | None:
    """A whole number of at least 0; None where it is none."""
    return int(token) if _WHOLE.fullmatch(token) else None


def quoted(text: str) -> str:
    """A piece of the output for a complaint: short, and harmless on a terminal."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")


def factor(operation: str, ranks: int) -> float | None:
    """`busbw / algbw` of an operation; None where bandwidths are not defined for it."""
    (*_, last) = metrics.measurements([Row(operation, MessagePoint(10**9, ""), max(ranks, 1), 0, 1.0)])
    return last.value if last.metric == "busbw" else None


def times_ranks(operation: str, size: int, ranks: int | None, per_rank: Collection[str]) -> int | None:
    """The definition's size of an operation whose program counts one rank's block; None where `ranks` is needed."""
    if operation not in per_rank:
        return size
    return size * ranks if ranks else None


def measurements(reading: BenchmarkResult) -> tuple[Measurement, ...]:
    """What reports show of a reading: latency in us, bandwidths by the definitions where a time was printed.

    Where none was, the printed figures stand for themselves. A single rank moves nothing: it has no bandwidths. Of
    equal points the last counts.
    """
    found: dict[str, Measurement] = {}
    for row in reading.rows:
        for item in _of(row):
            found[item.name] = item
    return tuple(found.values())


def _of(row: BenchmarkRow) -> Iterable[Measurement]:
    ranks, seconds = row.ranks or 0, row.seconds
    if seconds is not None:
        computed = metrics.measurements([Row(row.operation, row.point, ranks, row.iterations or 0, seconds)])
        yield from (item for item in computed if item.metric == "latency" or ranks > 1)
    for metric, (value, unit) in row.figures.items():
        computed_above = metric == "latency" or (seconds is not None and metric in ("algbw", "busbw"))
        if computed_above or (unit == "GB/s" and ranks == 1):
            continue
        shown = (value * 1e6, "us") if unit == "s" else (value, unit)
        yield Measurement(metric, *shown, row.point, ranks)
