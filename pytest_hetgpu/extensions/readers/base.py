"""The interface of output parsers: lines of another project's program in, measurements and checks out.

A workload makes a `ParseRequest` with the command's tokens, the parser's name (its file in this folder) and the
required points. The parser is fed with the run's output line by line, without the launcher's prefixes. `finish` returns
a `BenchmarkResult`, whose `missing` and `unchecked` give the unmet requirements.
"""

from __future__ import annotations

import abc
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pytest_hetgpu.extensions.output_patterns import ReaderSettings
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.model import metrics
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.old_spellings import KeepsOldNames, Renamed
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, ExitMeaning, OutputLine
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
    """A command, and the results that its output must have.

    Attributes:
        argv: the program and its options.
        reader: name of the parser.
        points: required points, with sizes of the bandwidth definitions (`metrics`), not as the program counts them.
        ranks: ranks of the rows, None if the program prints none.
        world: ranks of the job.
        operation: operation of the rows, if neither the output nor the command names it.

    """

    argv: tuple[str, ...] = ()
    reader: str = ""
    points: tuple[MessagePoint, ...] = ()
    ranks: int | None = None
    operation: str = ""
    world: int = 1

    @property
    def place(self) -> str:
        """Return the place of points: `in` if all required ones are in place. A program may not print it."""
        return "in" if self.points and all(point.in_place for point in self.points) else ""

    def option(self, *names: str) -> str:
        """Return the value of an option in `argv` (`-s 8`, `-s8`, `--size=8`), "" without it."""
        for index, token in enumerate(self.argv):
            for name in names:
                if token == name:
                    return self.argv[index + 1] if index + 1 < len(self.argv) else ""
                glued = f"{name}=" if name.startswith("--") else name
                if token.startswith(glued) and not (token.startswith("--") and not name.startswith("--")):
                    return token[len(glued) :]
        return ""


def operation_of(foreign: ExternalProgram) -> str:
    """Return the operation of a program's rows."""
    kind = find("readers", foreign.reader, OutputParser)  # type: ignore[type-abstract]
    return kind.measures(ParseRequest(foreign.argv, foreign.reader, ranks=foreign.ranks, operation=foreign.operation))


class ParseIssues:
    """Warnings about the output, each with its first line and the number of further lines."""

    def __init__(self) -> None:
        self._found: dict[str, list[int]] = {}

    def add(self, what: str, line: int = 0) -> None:
        """Add a warning about a line, or (0) about the whole output."""
        if what in self._found:
            self._found[what][1] += 1
        elif len(self._found) < _MOST_COMPLAINTS:
            self._found[what] = [line, 0]

    def remove(self, what: str) -> None:
        """Remove a warning, if it is there."""
        self._found.pop(what, None)

    said = Renamed("texts")

    @property
    def texts(self) -> tuple[str, ...]:
        """Return all of them, in the order in which they arose."""
        return tuple(f"{what}{_where(*found)}" for what, found in self._found.items())


def _where(line: int, more: int) -> str:
    if not line:
        return ""
    return f" (line {line}{f' and {more} more' if more else ''})"


class OutputParser(KeepsOldNames, abc.ABC):
    """A parser of one output. It never raises for any line, and keeps at most `MOST_ROWS` rows."""

    Settings: ClassVar[type[ReaderSettings]] = ReaderSettings
    prints: ClassVar[Mapping[str, str] | None] = None
    """Units of the metrics that its programs may print, as reports have them; None if only the output shows them."""
    tool: ClassVar[str]
    """Name of the program family, used if the output does not name the program."""
    cure_of_second: ClassVar[str] = ""
    """What the user may do about two numbers for one point: ` (let one rank print it)`."""
    exited = Renamed("meaning_of_exit")
    stopped = Renamed("meaning_of_stop")
    orphan = Renamed("note_headless_row")
    owes_rows = Renamed("require_rows")
    asked = Renamed("request")
    notes = Renamed("warnings")

    def __init__(self, asked: ParseRequest | None = None, settings: ReaderSettings | None = None) -> None:
        self.request = asked or ParseRequest()
        self.settings = settings or self.Settings()
        self.warnings = ParseIssues()
        self._rows: list[BenchmarkRow] = []
        self._orphan = 0
        self._second = ""
        self._lines: dict[tuple[str, MessagePoint, int | None, str, int | None], int] = {}

    @classmethod
    def measures(cls, asked: ParseRequest) -> str:
        """Return the operation of the rows, as far as the command names it."""
        return asked.operation or cls.tool

    @abc.abstractmethod
    def feed(self, line: str, number: int = 0) -> None:
        """Take one line without its end; `number` counts from 1."""

    def read(self, line: OutputLine) -> None:
        """Take one line of the job's output. A parser that counts per rank overrides this."""
        if line.text is not None:
            self.feed(line.text, line.number)

    @abc.abstractmethod
    def finish(self) -> BenchmarkResult:
        """Return the result after the last line."""

    @staticmethod
    def meaning_of_exit(code: int, reading: BenchmarkResult) -> ExitMeaning | None:
        """Return the meaning of an exit code together with the result; None if it is not bad."""
        if reading.wrong or (reading.failed and not reading.slow):
            return ExitMeaning(Kind.WRONG_RESULT, reading.failed[0] if reading.failed else "data failed its check")
        return ExitMeaning(Kind.ERROR, f"exit code {code}") if code else None

    @classmethod
    def meaning_of_stop(cls, reading: BenchmarkResult) -> ExitMeaning | None:
        """Return the meaning of the result of a program that did not end by itself."""
        return cls.meaning_of_exit(0, reading)

    @property
    def rows(self) -> tuple[BenchmarkRow, ...]:
        """Return the rows so far."""
        return tuple(self._rows)

    def add(self, row: BenchmarkRow, *, repeats: bool = False, rank: int | None = None) -> None:
        """Keep a row. Warn of one whose point has another number already, unless such numbers are `repeats`.

        Numbers that several ranks print, each `rank` its own, are repeats as well.
        """
        if len(self._rows) >= MOST_ROWS:
            self.warnings.add(f"more than {MOST_ROWS:,} rows: the rest is not read", row.line)
            return
        self._rows.append(row)
        for metric in row.figures:
            key = (row.operation, row.point, row.ranks, metric, rank)
            if key in self._lines and not repeats:
                line = f" in line {self._lines[key]}" if self._lines[key] else ""
                self._note_second(f"{metric} at {row.point}{line}", row)
                break
            self._lines.setdefault(key, row.line)

    def _note_second(self, first: str, row: BenchmarkRow) -> None:
        """Warn once of all points with two numbers; the warning names both lines of the first such point."""
        self._second = self._second or (
            f"{row.operation or 'the output'} has two numbers for one point{self.cure_of_second}: {first} and again"
        )
        self.warnings.add(self._second, row.line)

    def note_jobs(self, jobs: str) -> None:
        """Warn of several jobs in one output, which explain points with two numbers."""
        self.warnings.remove(self._second)
        self.warnings.add(jobs)

    def figure(self, name: str, token: str, line: int, scale: float = 1.0) -> float | None:
        """Parse a number and multiply it by `scale`. Warn and return None if it is invalid, negative or not finite."""
        value = number(token)
        if value is None:
            self.warnings.add(f"{name} is {quoted(token)}, no number", line)
        elif not math.isfinite(value * scale):
            self.warnings.add(f"{name} is not finite", line)
        elif value < 0:
            self.warnings.add(f"{name} is negative", line)
        else:
            return value * scale
        return None

    def note_headless_row(self, line: int) -> None:
        """Note a line that looks like a row before any header. It becomes a warning only if no header follows."""
        self._orphan = self._orphan or line or 1

    def require_rows(self, header: int) -> None:
        """Warn if there are no rows below the table's header in line `header` (0: no header)."""
        if header and not self._rows:
            self.warnings.add("a table's header, and no row that can be read", header)
        elif not self._rows and self._orphan:
            self.warnings.add("rows without a header above them", self._orphan)
        elif not self._rows:
            self.warnings.add("no table: the program measured nothing")


def number(token: str) -> float | None:
    """Parse a number as C and Python print them, `nan` and `inf` included; None if it is none."""
    if _NUMBER.fullmatch(token):
        return float(token)
    bare = token.lower().lstrip("+-")
    if bare in ("nan", "inf", "infinity"):
        return float("nan" if bare == "nan" else "-inf" if token.startswith("-") else "inf")
    return None


def whole(token: str) -> int | None:
    """Parse a whole number of at least 0; None if it is none."""
    return int(token) if _WHOLE.fullmatch(token) else None


def quoted(text: str) -> str:
    """Quote a piece of the output for a warning: short, and harmless on a terminal."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")


def factor(operation: str, ranks: int) -> float | None:
    """Return `busbw / algbw` of an operation; None if bandwidths are not defined for it."""
    first, *_ = metrics.measurements([Row(operation, MessagePoint(10**9, ""), max(ranks, 1), 0, 1.0)])
    return first.value if first.metric == "busbw" else None


def times_ranks(operation: str, size: int, ranks: int | None, per_rank: Collection[str]) -> int | None:
    """Convert one rank's block to the definition's size; None if `ranks` is needed and not known."""
    if operation not in per_rank:
        return size
    return size * ranks if ranks else None


def measurements(reading: BenchmarkResult) -> tuple[Measurement, ...]:
    """Convert a result for reports: latency in us, and bandwidths by the definitions from printed times.

    Without a time, printed figures are kept. A single rank moves no data and has no bandwidths. Repeats of a point
    become one measurement. A metric of several operations, or numbers of ranks, has their names in its own:
    `allreduce_latency`, `loop_4_ranks`.
    """
    every = [(row, item) for row in reading.rows for item in _of(row, reading.own)]
    operations: dict[str, set[str]] = {}
    worlds: dict[tuple[str, str], set[int]] = {}
    for row, item in every:
        operations.setdefault(item.metric, set()).add(row.operation)
        worlds.setdefault((item.metric, row.operation), set()).add(item.ranks)
    found: dict[str, list[Measurement]] = {}
    for row, item in every:
        metric = f"{row.operation}_{item.metric}" if len(operations[item.metric]) > 1 else item.metric
        if len(worlds[item.metric, row.operation]) > 1:
            metric = f"{metric}_{item.ranks}_ranks"
        named = replace(item, metric=metric)
        found.setdefault(named.name, []).append(named)
    return tuple(metrics.middle_of(repeats) for repeats in found.values())


def _of(row: BenchmarkRow, own: Mapping[str, str]) -> Iterable[Measurement]:
    """Yield the measurements of a row; `own` are the metrics that keep their unit."""
    ranks, seconds = row.ranks or 0, row.seconds
    if seconds is not None:
        computed = metrics.measurements([Row(row.operation, row.point, ranks, row.iterations or 0, seconds)])
        yield from (item for item in computed if item.metric == "latency" or ranks > 1)
    for metric, (value, unit) in row.figures.items():
        computed_above = metric == "latency" or (seconds is not None and metric in ("algbw", "busbw"))
        if computed_above or (unit == "GB/s" and ranks == 1 and metric not in own):
            continue
        shown = (value * 1e6, "us") if unit == "s" and metric not in own else (value, unit)
        yield Measurement(metric, *shown, row.point, ranks, better=own.get(metric, ""))
