"""Intel MPI Benchmarks 2018 to 2021: IMB-MPI1, NBC, RMA, P2P, and MT as far as their tables are alike.

Formats: src_c/IMB_output.c and src_cpp/P2P/, src_cpp/MT/ of IMB 2021.11. One output has a table for each benchmark and
number of processes; each benchmark is an operation of its own. A mode of IMB-RMA is part of the operation's name.

Times are in us, and Mbytes/sec are 1e6 bytes per second. Mbytes/sec beside the time of one message follows from it and
is not read. Sendrecv and Exchange count the bytes of both directions. A process's block of allgather, alltoall, gather
and scatter is printed; the parser converts it to the definition's size. `defects` is there if IMB was built with CHECK.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_hetgpu.extensions.output_patterns import ReaderSettings
from pytest_hetgpu.extensions.readers.base import LONGEST_LINE, OutputParser, ParseRequest, quoted, times_ranks, whole
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, Quantity
from pytest_hetgpu.model.records import MessagePoint

_TITLE = re.compile(r"#\s+Intel ?\(R\) MPI Benchmarks (?P<version>.+?), (?P<part>\S+) part")
_BENCHMARK = re.compile(r"# Benchmarking (\w+)")
_PROCESSES = re.compile(r"# #processes = (\d{1,9})\b")
_MODE = re.compile(r"#\s+MODE: (NON-)?AGGREGATE")
_TYPE = re.compile(r"# MPI_Datatype( for reductions)?\s*:\s*(\w+)")
_LISTED = re.compile(r"# (\w+)")
_OVER = re.compile(r"(\d{1,18})\s+(?:time-out|out-of-mem)\.")
_LIST = "# List of Benchmarks to run:"

_US, _MB = 1e-6, 1e-3
# Each column's metric, unit, and factor into that unit.
_FIGURES = {
    "t[usec]": ("latency", "s", _US),
    "t_avg[usec]": ("latency", "s", _US),
    "t_min[usec]": ("latency_min", "s", _US),
    "t_max[usec]": ("latency_max", "s", _US),
    "t_pure[usec]": ("latency", "s", _US),
    "t_ovrl[usec]": ("overall", "s", _US),
    "t_CPU[usec]": ("compute", "s", _US),
    "overlap[%]": ("overlap", "%", 1.0),
    "Msg/sec": ("message_rate", "1/s", 1.0),
}
_RATE = "Mbytes/sec"
_COUNTED = ("#bytes", "#repetitions", "defects")
_BOTH_WAYS = {"sendrecv", "exchange", "biband", "birandom"}
# A sendrecv of nccl-tests is one direction; that of IMB is a chain.
_NAMES = {"pingpong": "send_recv", "bcast": "broadcast", "sendrecv": "sendrecv_chain"}
_PER_RANK = {f"{name}{end}" for name in ("allgather", "alltoall", "gather", "scatter") for end in ("", "v")}
_REDUCTIONS = {"allreduce", "reduce", "reduce_scatter", "reduce_scatter_block", "reduce_local"}
_TYPES = {"MPI_CHAR": "int8", "MPI_BYTE": "uint8", "MPI_INT": "int32", "MPI_FLOAT": "float32", "MPI_DOUBLE": "float64"}


def operation(benchmark: str) -> str:
    """Return the operation of a benchmark: `send_recv` for PingPong, `ibroadcast` for Ibcast, else its own name."""
    name, pure, _ = benchmark.lower().partition("_pure")
    plain = name.removeprefix("i")
    known = {**_NAMES, **{one: one for one in _PER_RANK | _REDUCTIONS}}
    if name.startswith("i") and plain in known:
        return f"i{known[plain]}{pure}"
    return f"{_NAMES.get(name, name)}{pure}"


class ImbParser(OutputParser):
    """A parser of one table per benchmark and number of processes."""

    tool = "imb"
    prints = {
        **dict.fromkeys(("overall", "compute"), "us"),
        **dict.fromkeys(("bandwidth", "bidirectional_bandwidth"), "GB/s"),
        "message_rate": "1/s",
        "overlap": "%",
    }

    def __init__(self, asked: ParseRequest | None = None, settings: ReaderSettings | None = None) -> None:
        super().__init__(asked, settings)
        self._reading = BenchmarkResult(self.tool)
        self._benchmark = ""
        self._mode = ""
        self._ranks: int | None = None
        self._types = {"": "uint8", " for reductions": "float32"}
        self._columns: tuple[str, ...] = ()
        self._header = 0
        self._listed: dict[str, None] = {}
        self._in_list = False

    @classmethod
    def measures(cls, asked: ParseRequest) -> str:
        named = next((token for token in asked.argv[1:] if not token.startswith("-")), "")
        return asked.operation or (operation(named) if named else cls.tool)

    def feed(self, line: str, number: int = 0) -> None:
        text = line[:LONGEST_LINE].strip()
        if text.startswith(("#bytes", "#repetitions")):
            self._open(text, number)
        elif text.startswith("#"):
            self._comment(text)
        elif over := _OVER.match(text):
            why = quoted(text[over.end(1) :].strip())
            self.warnings.add(f"{self._benchmark} did not measure {over[1]} bytes: {why}", number)
        elif text[:1].isdigit() and self._columns:
            self._row(text, number)
        elif text[:1].isdigit() and not self._header and len(text.split()) > 3:
            self.note_headless_row(number)

    def finish(self) -> BenchmarkResult:
        self.require_rows(self._header)
        measured = {row.operation.removesuffix("_aggregate") for row in self._rows}
        missing = [name for name in self._listed if operation(name) not in measured]
        if missing and self._header:
            self.warnings.add(f"no table of {', '.join(missing)}, which it was to run")
        return replace(self._reading, rows=self.rows, warnings=self.warnings.texts)

    def _comment(self, text: str) -> None:
        if title := _TITLE.match(text):
            self._reading = replace(self._reading, version=title["version"])
        elif found := _TYPE.match(text):
            self._types[found[1] or ""] = _TYPES.get(found[2], found[2].lower())
        elif found := _BENCHMARK.match(text):
            self._benchmark, self._mode, self._ranks, self._columns, self._in_list = found[1], "", None, (), False
        elif found := _PROCESSES.match(text):
            self._ranks = int(found[1])
        elif found := _MODE.match(text):
            self._mode = "" if found[1] else "_aggregate"
        elif text.startswith(_LIST):
            self._in_list = True
        elif self._in_list and (found := _LISTED.fullmatch(text)):
            self._listed[found[1]] = None

    def _open(self, text: str, line: int) -> None:
        columns = tuple(text.split())
        unknown = [name for name in columns if name not in (*_FIGURES, *_COUNTED, _RATE)]
        self._header, self._columns, self._in_list = line or 1, () if unknown else columns, False
        if unknown:
            self.warnings.add(f"a table with the unknown column {quoted(unknown[0])}; its rows are not read", line)

    def _row(self, text: str, line: int) -> None:
        tokens = text.split()
        if len(tokens) != len(self._columns):
            self.warnings.add(f"a row of {len(tokens)} columns below a header of {len(self._columns)}", line)
            return
        cells = dict(zip(self._columns, tokens, strict=True))
        size, iterations = (whole(cells.get(name, "0")) for name in _COUNTED[:2])
        if size is None or iterations is None:
            self.warnings.add("a row whose bytes or repetitions are no whole number", line)
            return
        name = operation(self._benchmark)
        base = name.removesuffix("_pure")
        base = base.removeprefix("i") if base.removeprefix("i") in _PER_RANK | _REDUCTIONS else base
        defined = times_ranks(base, size, self._ranks or self.request.ranks, _PER_RANK)
        if defined is None:
            self.warnings.add(f"how many ranks took part must be known to compute {name}'s size", line)
            return
        dtype = self._types[" for reductions" if base in _REDUCTIONS else ""]
        point = MessagePoint(defined, dtype, self.request.place) if "#bytes" in cells else MessagePoint(0, "none")
        wrong = self.figure("defects", cells["defects"], line) if "defects" in cells else None
        self.add(
            BenchmarkRow(
                f"{name}{self._mode}",
                point,
                self._ranks or self.request.ranks,
                self._figures(cells, line),
                iterations,
                None if wrong is None else int(wrong > 0),
                line,
            )
        )

    def _figures(self, cells: dict[str, str], line: int) -> dict[str, Quantity]:
        found: dict[str, Quantity] = {}
        both_ways = self._benchmark.lower() in _BOTH_WAYS
        for title, token in cells.items():
            if title == _RATE and not (both_ways or "t[usec]" not in cells):
                continue
            rate = ("bidirectional_bandwidth" if both_ways else "bandwidth", "GB/s", _MB)
            name, unit, scale = rate if title == _RATE else _FIGURES.get(title, ("", "", 1.0))
            value = self.figure(title, token, line, scale) if name else None
            if value is not None:
                found[name] = Quantity(value, unit)
        return found
