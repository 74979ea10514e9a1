"""mpi4py.bench: pingpong, ringtest, futures and helloworld.

Formats: src/mpi4py/bench.py of mpi4py 3.0 to 4.1. Release 3 has helloworld and ringtest only.

MB/s are 1e6 bytes per second; `Time Mean [s]` is half of a round trip. A pingpong has two ranks in any world, or one
that plays with itself. `--no-stats` leaves size and bandwidth, `--no-header` no header at all. Rank 0 times a ringtest
over all loops. A message that came back different is a warning on stderr. The launcher of another MPI starts jobs of
one rank each. They print `0 of 1` or `1 processes`, once per job.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_hetgpu.extensions.output_patterns import ReaderSettings
from pytest_hetgpu.extensions.readers.base import LONGEST_LINE, OutputParser, ParseRequest, number, quoted, whole
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, Quantity
from pytest_hetgpu.model.records import MessagePoint

_HEADER = re.compile(r"# Size \[B\]  (?P<column>Bandwidth \[MB/s\]|Tasks/s)(?P<statistics> \| Time Mean \[s\] .*)?")
_WORKERS = re.compile(r"# (\w+) - (\d{1,9}) workers, (\d{1,9}) tasks/worker")
# The sign between mean and deviation is not ASCII. Its encoding may be broken.
_ROW = re.compile(r"(?P<size>\d+)\s+(?P<value>\S+)(?: \| (?P<mean>\S+) \S{1,8} (?P<deviation>\S+)\s+(?P<samples>\d+))?")
_RING = re.compile(r"time for (\d+) loops = (\S+) seconds \((\d+) processes, (\d+) bytes\)")
_HELLO = re.compile(r"Hello, World! I am process +(\d+) of (\d+) on ")
_UNKNOWN = re.compile(r"\S+: error: unknown command '(\w+)'")
_DIFFERS = "received message does not match"


class Mpi4pyBenchParser(OutputParser):
    """A row for each size of pingpong and futures, and one for a ringtest."""

    tool = "mpi4py.bench"
    prints = {"bandwidth": "GB/s", "task_rate": "1/s"}

    def __init__(self, asked: ParseRequest | None = None, settings: ReaderSettings | None = None) -> None:
        super().__init__(asked, settings)
        self._header = 0
        self._operation = "send_recv"
        self._column = ""
        self._statistics = False
        self._headers = 0
        self._alone = 0
        self._hello = 0
        self._failed = ""
        self._unsupported = ""

    @classmethod
    def measures(cls, asked: ParseRequest) -> str:
        return "send_recv" if "pingpong" in asked.argv else "ringtest" if "ringtest" in asked.argv else cls.tool

    def feed(self, line: str, number: int = 0) -> None:
        text = line[:LONGEST_LINE].strip()
        if found := _HEADER.fullmatch(text):
            self._header, self._statistics, self._headers = number or 1, bool(found["statistics"]), self._headers + 1
            self._column = found["column"]
        elif _WORKERS.fullmatch(text):
            self._operation = "futures"
        elif text.startswith("# MPI PingPong"):
            self._operation = "send_recv"
        elif text.startswith("# Size"):
            self.warnings.add(f"unlike any header: {quoted(text)}; its rows are not read", number)
            self._header, self._column = number or 1, ""
        elif found := _RING.fullmatch(text):
            self._ring(found, number)
        elif found := _HELLO.match(text):
            self._hello += 1
            self._alone += found[2] == "1"
        elif _DIFFERS in text:
            self._failed = self._failed or text[:200]
        elif text[:1].isdigit():
            self._row(text, number)
        elif (found := _UNKNOWN.fullmatch(text)) and found[1] in self.request.argv:
            self._unsupported = found[1]

    def finish(self) -> BenchmarkResult:
        if not (self._hello and not self._header):
            self.require_rows(self._header)
        if self._alone:
            many = f"{self._alone} single-rank jobs ran" if self._alone > 1 else "1 rank"
            self.note_jobs(f"{many}: nothing moved between ranks")
        elif self._hello and self.request.ranks not in (None, self._hello):
            self.warnings.add(f"{self.request.ranks} ranks were asked for, {self._hello} printed hello")
        elif self._headers > 1:
            self.note_jobs(f"{self._headers} jobs printed into one output")
        # The warning is on stderr, so it may be before or after the line.
        wrong = 1 if self._failed else 0
        rows = tuple(replace(row, wrong=wrong) if row.operation == "ringtest" else row for row in self.rows)
        failed = (self._failed,) if self._failed else ()
        return BenchmarkResult(self.tool, "", rows, self.warnings.texts, failed, unsupported=self._unsupported)

    def _row(self, text: str, line: int) -> None:
        found = _ROW.fullmatch(text)
        if found is None or number(found["value"]) is None:
            if self._column and len(text.split()) > 1 and text.split()[1][:1].isdigit():
                self.warnings.add("a row that cannot be read", line)
            return
        headed = bool(self._column) or "--no-header" in self.request.argv
        if not headed:
            if not self._header:
                self.note_headless_row(line)
            return
        if bool(found["mean"]) is not self._statistics and self._header:
            self.warnings.add("a row with fewer or more columns than the header has", line)
            return
        size = whole(found["size"])
        if size is None:
            self.warnings.add("the size is no whole number", line)
            return
        tasks = self._column == "Tasks/s"
        figures = self._figures(found, tasks, line)
        if figures:
            point = MessagePoint(size, self._dtype(size), self.request.place)
            self.add(
                BenchmarkRow(
                    self._operation, point, self._ranks(tasks), figures, whole(found["samples"] or ""), line=line
                )
            )

    def _figures(self, found: re.Match[str], tasks: bool, line: int) -> dict[str, Quantity]:
        named = [("task_rate", "value", "1/s", 1.0) if tasks else ("algbw", "value", "GB/s", 1e-3)]
        if found["mean"]:
            named += [("latency", "mean", "s", 1.0), ("deviation", "deviation", "s", 1.0)]
        figures: dict[str, Quantity] = {}
        for name, group, unit, scale in named:
            value = self.figure(name, found[group], line, scale)
            if value is not None:
                figures[name] = Quantity(value, unit)
        return figures

    def _ring(self, found: re.Match[str], line: int) -> None:
        loops, ranks, size = whole(found[1]), whole(found[3]), whole(found[4])
        seconds = self.figure("time", found[2], line)
        if not loops or ranks is None or size is None or seconds is None:
            self.warnings.add("a ringtest without loops, ranks, size or time", line)
            return
        if self.request.ranks not in (None, ranks):
            self.warnings.add(f"{self.request.ranks} ranks were asked for, the job has {ranks}")
        self._header = self._header or line or 1
        self._alone += ranks == 1
        figures = {"latency": Quantity(seconds / loops, "s")}
        point = MessagePoint(size, self._dtype(size), self.request.place)
        self.add(BenchmarkRow("ringtest", point, ranks, figures, loops, line=line))

    def _ranks(self, tasks: bool) -> int | None:
        if tasks or self.request.ranks is None:
            return self.request.ranks
        return min(self.request.ranks, 2)

    def _dtype(self, size: int) -> str:
        """Return the required dtype at this size, as bytes have no type."""
        return next((point.dtype for point in self.request.points if point.size == size), "uint8")
