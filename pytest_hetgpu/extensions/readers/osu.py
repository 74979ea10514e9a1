"""OSU micro-benchmarks, versions 5 to 7: point-to-point, collectives, one-sided, and those over NCCL and RCCL.

Formats: c/util/osu_util.c, c/util/osu_util_mpi.c (header lines, `print_stats*`, columns of `-f`, `-c`, `-z`),
c/mpi/pt2pt/standard/osu_mbw_mr.c, c/mpi/collective/blocking/osu_allreduce.c (message of a failed check) of 7.4;
mpi/pt2pt/osu_pt2pt.c and mpi/collective/osu_coll.c of 5.3.

A collective prints a latency only. MB/s are 1e6 bytes per second. The printed size is one rank's block of allgather,
alltoall, gather and scatter, and the whole buffer of reduce_scatter. The parser converts it to the definition's. Ranks
and being in place are never printed. Up to 7.0 no type is printed either: reductions use MPI_FLOAT, others MPI_CHAR. A
failed check ends the table at its size.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath

from pytest_hetgpu.extensions.output_patterns import ReaderSettings
from pytest_hetgpu.extensions.readers.base import (
    LONGEST_LINE,
    OutputParser,
    ParseRequest,
    number,
    quoted,
    times_ranks,
    whole,
)
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, Quantity
from pytest_hetgpu.model.records import MessagePoint

_TITLE = re.compile(
    r"# OSU (?P<library>[A-Z][A-Za-z+]*(?:_[A-Z][a-z_]*)?)(?P<memory>-[A-Z]+(?: MANAGED)?)? ?(?P<title>[^#]*?) ?Test"
    r"(?: v(?P<version>[\w.+-]+))?\s*$"
)
_DATATYPE = re.compile(r"# Datatype: (\w+)\.")
_BUFFERS = re.compile(r"# Send Buffer on (?P<send>.+) and Receive Buffer on (?P<receive>.+)$")
_FAILED = re.compile(r"DATA VALIDATION ERROR: .*on message size (?P<size>\d+)")

_COLUMN = re.compile(
    r"Size|Transmit Size|(?:Avg |Min |Max )?Latency ?\(us\)|Iterations|Validation|Bandwidth \(MB/s\)|MB/s|Messages/s"
    r"|(?:Overall|Compute|Coll\. Init|MPI_Test|MPI_Wait|Pure Comm\.|Min Comm\.|Max Comm\.)\(us\)|Overlap\(%\)"
    r"|P\d{1,3} Tail (?:Lat\(us\)|BW\(MB/s\))"
)
_US, _MB = 1e-6, 1e-3
# Each column's metric, unit, and factor into that unit.
_FIGURES = {
    "Avg Latency(us)": ("latency", "s", _US),
    "Latency (us)": ("latency", "s", _US),
    "Min Latency(us)": ("latency_min", "s", _US),
    "Max Latency(us)": ("latency_max", "s", _US),
    "Pure Comm.(us)": ("latency", "s", _US),
    "Min Comm.(us)": ("latency_min", "s", _US),
    "Max Comm.(us)": ("latency_max", "s", _US),
    "Overall(us)": ("overall", "s", _US),
    "Compute(us)": ("compute", "s", _US),
    "Coll. Init(us)": ("init", "s", _US),
    "MPI_Test(us)": ("test", "s", _US),
    "MPI_Wait(us)": ("wait", "s", _US),
    "Overlap(%)": ("overlap", "%", 1.0),
    "Messages/s": ("message_rate", "1/s", 1.0),
}

_PROGRAM = re.compile(
    r"(?:xccl_|nccl_)?(?:neighbor_)?(?P<i>i?)(?:neighbor_)?(?P<base>\w+?)(?P<persistent>(?:_persistent)?)"
)
_ONE_SIDED = re.compile(r"(put|get|acc|get_acc|cas|fop)_(?:latency|bw|bibw|mbw|multi_lat)")
_PROGRAMS = {
    "latency": "send_recv",
    "bw": "send_recv",
    "mbw_mr": "send_recv",
    "bibw": "bidirectional_send_recv",
    "multi_lat": "multi_send_recv",
    "latency_mp": "multi_send_recv",
    "latency_mt": "threaded_send_recv",
    "bcast": "broadcast",
    "acc": "accumulate",
    "get_acc": "get_accumulate",
    "cas": "compare_and_swap",
    "fop": "fetch_and_op",
}

# The first of these in a lower-case title is the operation.
_OPERATIONS = (
    ("reduce_scatter_block", "reduce_scatter_block"),
    ("reduce_scatter", "reduce_scatter"),
    *((name, name) for name in ("allreduce", "allgatherv", "allgather")),
    *((f"all-to-all{end}", f"alltoall{end}") for end in ("v", "w", "")),
    *((f"alltoall{end}", f"alltoall{end}") for end in ("v", "w", "")),
    ("broadcast", "broadcast"),
    *((name, name) for name in ("gatherv", "gather", "scatterv", "scatter", "reduce", "barrier")),
    *(("multi-threaded", "threaded_send_recv"), ("multi latency", "multi_send_recv")),
    *(("multi-process", "multi_send_recv"), ("bi-directional", "bidirectional_send_recv")),
    *((name, "send_recv") for name in ("bandwidth", "latency")),
)
_PER_RANK = {f"{name}{end}" for name in ("allgather", "alltoall", "gather", "scatter") for end in ("", "v", "w")}
_REDUCTIONS = {"allreduce", "reduce", "reduce_scatter", "reduce_scatter_block"}
_PAIR = {"send_recv", "bidirectional_send_recv"}
_CHECKS = {"Pass": 0, "Fail": 1, "N/A": None}
_TYPES = {"MPI_CHAR": "int8", "MPI_INT": "int32", "MPI_FLOAT": "float32", "MPI_DOUBLE": "float64", "MPI_BYTE": "uint8"}


class OsuParser(OutputParser):
    """A parser of one table per datatype. The header names the columns; rows that do not fit it are not read."""

    tool = "osu"
    prints = {
        **dict.fromkeys(("overall", "compute", "init", "test", "wait"), "us"),
        **dict.fromkeys(("bandwidth", "bidirectional_bandwidth", "aggregate_bandwidth"), "GB/s"),
        "message_rate": "1/s",
        "overlap": "%",
    }

    def __init__(self, asked: ParseRequest | None = None, settings: ReaderSettings | None = None) -> None:
        super().__init__(asked, settings)
        self._reading = BenchmarkResult(self.tool)
        self._operation = self.request.operation
        self._base = self._operation
        self._several = False
        self._dtype = ""
        self._columns: tuple[str, ...] = ()
        self._header = 0
        self._failed: list[str] = []

    @classmethod
    def measures(cls, asked: ParseRequest) -> str:
        name = PurePosixPath(asked.argv[0]).name.removeprefix("osu_") if asked.argv else ""
        found = _PROGRAM.fullmatch(name)
        if not found:
            return name or cls.tool
        if one_sided := _ONE_SIDED.fullmatch(name):
            return _PROGRAMS.get(one_sided[1], one_sided[1])
        # Titles have these parts in this order, program names do not.
        neighbor = "neighbor_" if "neighbor_" in name else ""
        base = _PROGRAMS.get(found["base"], found["base"])
        return f"{neighbor}{found['i']}{base}{found['persistent']}"

    def feed(self, line: str, number: int = 0) -> None:
        text = line[:LONGEST_LINE].strip()
        if text.startswith("#"):
            self._comment(text, number)
        elif text.startswith("DATA VALIDATION ERROR"):
            self._failed.append(text[:200])
        elif text and self._columns:
            self._row(text, number)
        elif text and not self._header and " " in text and _like_row(text.split()):
            self.note_headless_row(number)

    def finish(self) -> BenchmarkResult:
        self.require_rows(self._header)
        for said in self._failed:
            found = _FAILED.search(said)
            self._mark(int(found["size"][:18]) if found else None)
        return replace(
            self._reading, rows=self.rows, warnings=self.warnings.texts, failed=tuple(dict.fromkeys(self._failed))
        )

    def _comment(self, text: str, line: int) -> None:
        if title := _TITLE.match(text):
            self._title(title)
        elif datatype := _DATATYPE.match(text):
            self._dtype = _TYPES.get(datatype[1], datatype[1])
        elif buffers := _BUFFERS.match(text):
            kinds = tuple(dict.fromkeys(buffers.groups()))
            self._reading = replace(self._reading, memory=" to ".join(kinds))
        elif not (rest := text.lstrip("# ")) or rest.startswith(("[ pairs:", "Overall = ", "Window ", "Synchron")):
            return
        elif (columns := _columns(rest)) is not None:
            self._columns, self._header = columns, line
            if not columns:
                self.warnings.add(f"unlike any header: {quoted(text)}; its rows are not read", line)

    def _title(self, found: re.Match[str]) -> None:
        library, title = found["library"], found["title"].lower()
        one_sided = library.startswith("MPI_")
        base = next((name for words, name in _OPERATIONS if words in title), "")
        self._base = library[4:].lower() if one_sided else base
        parts = [
            "neighbor_" if "neighborhood" in title else "",
            "i" if "non-blocking" in title else "",
            self._base,
            "_persistent" if "persistent" in title else "",
        ]
        self._operation = "".join(parts) or self.request.operation
        self._several = "multiple" in title
        # Programs over NCCL of a build of 5.x are not those over MPI.
        tool = self.tool if library.startswith("MPI") else f"{self.tool}-{library.lower()}"
        self._reading = replace(
            self._reading, tool=tool, version=found["version"] or "", memory=(found["memory"] or "").lstrip("-").lower()
        )
        self._columns, self._dtype = (), ""

    def _row(self, text: str, line: int) -> None:
        tokens = text.split()
        if not _like_row(tokens):
            if number(tokens[0]) is not None and len(tokens) > 1 and tokens[1][0].isdigit():
                self.warnings.add("a row that something else was printed into", line)
            return
        if len(tokens) != len(self._columns):
            self.warnings.add(f"a row of {len(tokens)} columns below a header of {len(self._columns)}", line)
            return
        cells = dict(zip(self._columns, tokens, strict=True))
        if cells.get("Validation", "N/A") not in _CHECKS:
            # Some builds log each wrong element between the rows: its position, and two values.
            self.warnings.add("lines of numbers whose check is neither Pass nor Fail: no rows", line)
            return
        size = whole(cells["Size"]) if "Size" in cells else 0
        if size is None:
            self.warnings.add(f"the size is {quoted(cells['Size'])}, no whole number", line)
            return
        figures = self._figures(cells, line)
        self._keep(size, figures, cells, line)

    def _figures(self, cells: dict[str, str], line: int) -> dict[str, Quantity]:
        found: dict[str, Quantity] = {}
        for title, token in cells.items():
            if title in _FIGURES:
                name, unit, scale = _FIGURES[title]
            elif title.startswith("P") and "Tail" in title:
                lat = "Lat" in title
                name, unit, scale = self._tail(title, lat), "s" if lat else "GB/s", _US if lat else _MB
            elif title.endswith(("MB/s", "MB/s)")):
                name, unit, scale = self._bandwidth, "GB/s", _MB
            else:
                continue
            value = self.figure(title, token, line, scale)
            if value is not None:
                found[name] = Quantity(value, unit)
        return found

    @property
    def _bandwidth(self) -> str:
        if self._several:
            return "aggregate_bandwidth"
        return "bidirectional_bandwidth" if self._base == "bidirectional_send_recv" else "bandwidth"

    def _tail(self, title: str, lat: bool) -> str:
        return f"{'latency' if lat else self._bandwidth}_{title.partition(' ')[0].lower()}"

    def _keep(self, size: int, figures: dict[str, Quantity], cells: dict[str, str], line: int) -> None:
        ranks = self.request.ranks
        if self._base in _PAIR and not self._several and self._operation == self._base:
            if ranks not in (None, 2):
                self.warnings.add(f"{ranks} ranks were asked for, and this program runs with 2")
            ranks = 2
        defined = times_ranks(self._base, size, ranks, _PER_RANK)
        if defined is None:
            self.warnings.add(f"how many ranks took part must be known to compute {self._operation}'s size", line)
            return
        dtype = self._dtype or ("float32" if self._base in _REDUCTIONS else "int8")
        point = MessagePoint(defined, dtype, self.request.place) if "Size" in cells else MessagePoint(0, "none")
        wrong = _CHECKS[cells.get("Validation", "N/A")]
        iterations = whole(cells.get("Iterations", ""))
        self.add(BenchmarkRow(self._operation, point, ranks, figures, iterations, wrong, line))

    def _mark(self, size: int | None) -> None:
        """Mark rows of a failed check: rows of its size that were not verified as right are wrong."""
        if size is None or any(row.wrong for row in self._rows):
            return
        defined = times_ranks(self._base, size, self.request.ranks, _PER_RANK)
        for index, row in enumerate(self._rows):
            if row.point.size == defined and row.wrong is None:
                self._rows[index] = replace(row, wrong=1)


def _columns(text: str) -> tuple[str, ...] | None:
    """Return a header's columns; none if the header is not understood, None if the line is no header."""
    found = tuple(_COLUMN.findall(text))
    rest = _COLUMN.sub("", text).strip()
    if found and not rest:
        return found
    numbers = all(number(token) is not None for token in text.split())
    return () if numbers or (rest and ("Size" in found or "(us)" in text or "MB/s" in text)) else None


def _like_row(tokens: list[str]) -> bool:
    return number(tokens[0]) is not None and all(
        number(token) is not None or token in ("Pass", "Fail", "N/A") for token in tokens[1:]
    )
