"""ucc_perftest: settings, then a table of times, with `-F` of bus bandwidths too.

Formats: tools/perf/ucc_pt_benchmark.cc (`print_header`, `print_time`), ucc_pt_coll_*.cc (`get_bw`),
generator/ucc_pt_generator_exp.cc (counts) and src/utils/ucc_log.h (names) of UCC 1.3 to 1.9.

Times are in us, GB/s are 1e9. The bandwidth of 1.3 is the bus bandwidth of later releases. Its columns are avg, max,
min, as they belong to the times avg, min, max. `Size` is one rank's source: a block of allgather and gather. For
alltoall, reduce_scatter and scatter it is the whole from 1.5 on, and a block up to 1.4. The program prints no version.
With `-F` the bandwidth decides between the two. Without it those three are read only if "Iteration mode" proves a late
release. Columns have 12 characters, so a number that fills its column runs into its neighbour. Nothing is checked.
"""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.output_patterns import ReaderSettings
from pytest_hetgpu.extensions.readers.base import (
    LONGEST_LINE,
    OutputParser,
    ParseRequest,
    factor,
    number,
    quoted,
    whole,
)
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, Quantity
from pytest_hetgpu.model.records import MessagePoint

_SETTING = re.compile(r"(Collective|Memory type|Datatype|Data type|Inplace|Iteration mode|  small|  large):? +(\S+)")
_HEADER = re.compile(r"Count +Size +Time, us(?P<bandwidth> +(?:Bus )?Bandwidth, GB/s)?\s*")
_STATISTICS = {"avg min max": False, "avg min max avg max min": True}
_PER_RANK = {"allgather", "allgatherv", "gather", "gatherv"}
# Collectives whose size was a block, and is the whole since 1.5.
_CHANGED = {"alltoall", "alltoallv", "reduce_scatter", "reduce_scatterv", "scatter", "scatterv"}
_NAMES = {"bcast": "broadcast"}


class UccPerftestParser(OutputParser):
    """One row for each line of the table."""

    tool = "ucc_perftest"
    prints = {"latency": "us"}

    def __init__(self, asked: ParseRequest | None = None, settings: ReaderSettings | None = None) -> None:
        super().__init__(asked, settings)
        self._settings: dict[str, str] = {}
        self._header = 0
        self._columns = 0

    @classmethod
    def measures(cls, asked: ParseRequest) -> str:
        name = asked.option("-c")
        return _NAMES.get(name, name) or cls.tool

    def feed(self, line: str, number: int = 0) -> None:
        text = line[:LONGEST_LINE].rstrip()
        if found := _SETTING.match(text):
            # The last `small` before the table is the number of iterations.
            self._settings[found[1].strip()] = found[2]
        elif found := _HEADER.fullmatch(text.strip()):
            self._header, self._columns = number or 1, 8 if found["bandwidth"] else 5
        elif text.split()[:1] == ["Count"] and "Time" in text:
            self.warnings.add(f"unlike any header: {quoted(text.strip())}; its rows are not read", number)
            self._header, self._columns = number or 1, 0
        elif (statistics := " ".join(text.split())).startswith("avg "):
            if _STATISTICS.get(statistics) is not (self._columns == 8):
                self.warnings.add(f"unlike any header: {quoted(statistics)}; its rows are not read", number)
                self._columns = 0
        elif text:
            self._row(text.split(), number)

    def finish(self) -> BenchmarkResult:
        self.require_rows(self._header)
        if self.request.ranks == 1:
            self.warnings.add("1 rank: nothing moved, no figure is a bandwidth")
        memory = self._settings.get("Memory type", "").lower()
        return BenchmarkResult(self.tool, "", self.rows, self.warnings.texts, memory=memory)

    @property
    def _operation(self) -> str:
        name = self._settings.get("Collective", "").lower()
        return _NAMES.get(name, name) or self.request.operation

    def _row(self, tokens: list[str], line: int) -> None:
        if not all(cell == "N/A" or number(cell) is not None for cell in tokens):
            if self._columns and len(tokens) > 2 and all(cell == "N/A" or cell.isdecimal() for cell in tokens[:2]):
                self.warnings.add("a row that cannot be read: something was printed into it, or columns have met", line)
            return
        if not self._columns:
            if not self._header:
                self.note_headless_row(line)
            return
        if len(tokens) != self._columns:
            self.warnings.add(f"a row of {len(tokens)} columns below a header of {self._columns}", line)
            return
        figures: dict[str, Quantity] = {}
        for name, token in zip(("latency", "latency_min", "latency_max"), tokens[2:], strict=False):
            value = self.figure(name, token, line, 1e-6)
            if value is not None:
                figures[name] = Quantity(value, "s")
        # For gather and scatter only the slowest rank's is printed.
        if self._columns == 8 and tokens[5] != "N/A" and self.request.ranks != 1:
            value = self.figure("busbw", tokens[5], line)
            if value is not None:
                figures["busbw"] = Quantity(value, "GB/s")
        self._keep(tokens, figures, line)

    def _keep(self, tokens: list[str], figures: dict[str, Quantity], line: int) -> None:
        if tokens[1] == "N/A":
            point: MessagePoint | None = MessagePoint(0, "none")
        else:
            point = self._point(tokens[1], figures, line)
        if point is not None and figures:
            small = self._settings.get("small")
            same = small is not None and small == self._settings.get("large")
            self.add(
                BenchmarkRow(
                    self._operation, point, self.request.ranks, figures, whole(small or "") if same else None, line=line
                )
            )

    def _point(self, token: str, figures: dict[str, Quantity], line: int) -> MessagePoint | None:
        size, ranks = whole(token), self.request.ranks
        if size is None:
            self.warnings.add(f"the size is {quoted(token)}, no whole number", line)
            return None
        if self._operation in _PER_RANK | _CHANGED:
            if not ranks:
                self.warnings.add(f"how many ranks took part must be known to compute {self._operation}'s size", line)
                return None
            parts = ranks if self._operation in _PER_RANK else self._parts(size, ranks, figures)
            if parts is None:
                self.warnings.add(
                    f"whether {self._operation}'s size is a block or the whole depends on the release: run it with -F",
                    line,
                )
                return None
            size *= parts
        inplace = self._settings.get("Inplace", "") == "1"
        dtype = self._settings.get("Datatype") or self._settings.get("Data type", "")
        return MessagePoint(size, dtype, "in" if inplace else self.request.place)

    def _parts(self, size: int, ranks: int, figures: dict[str, Quantity]) -> int | None:
        """Return how many printed sizes make the whole, by the bandwidth or by a line that only late releases print."""
        busbw, time = figures.get("busbw"), figures.get("latency")
        known = factor(self._operation, ranks)
        if busbw and time and known and busbw.value >= 0.1:
            whole_size = busbw.value * 1e9 * time.value / known
            return 1 if abs(whole_size - size) < abs(whole_size - size * ranks) else ranks
        return 1 if "Iteration mode" in self._settings else None
