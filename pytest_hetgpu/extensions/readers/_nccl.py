"""Common parts of the parsers of nccl-tests' table and JSON: names of programs and types, cells of one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from pytest_hetgpu.extensions.readers.base import OutputParser, ParseRequest, factor, quoted, whole
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, Quantity

OPERATIONS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "alltoall",
    "alltoallv": "alltoallv",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
    "hypercube": "hypercube",
}
TYPES = {"char": "int8", "int": "int32", "half": "float16", "float": "float32", "double": "float64"}
_PROGRAM = re.compile(r"([a-z_]+?)(?:_perf)?(?:_mpi)?")

_GBS = "GB/s"
# Each column's metric, unit, and factor into that unit.
COLUMNS = {
    "time": ("latency", "s", 1e-6),
    "cputime": ("cpu_time", "s", 1e-6),
    "algbw": ("algbw", _GBS, 1.0),
    "busbw": ("busbw", _GBS, 1.0),
    "i_min": ("iteration_min", "s", 1e-6),
    "i_max": ("iteration_max", "s", 1e-6),
    "i_p99": ("iteration_p99", "s", 1e-6),
    "i_cv%": ("iteration_variation", "%", 1.0),
}


def operation(program: str) -> str:
    """Return the operation that a program of nccl-tests measures, "" for another program."""
    found = _PROGRAM.fullmatch(PurePosixPath(program).name)
    return OPERATIONS.get(found[1], "") if found else ""


def asked_operation(asked: ParseRequest) -> str:
    """Return the operation that the command measures."""
    return asked.operation or next(filter(None, map(operation, asked.argv)), "")


def library_version(code: str) -> str:
    """Convert a version code like 22907 to `2.29.7`; up to 2.8 the code was 2804."""
    number = whole(code) or 0
    if not number:
        return ""
    step = 10_000 if number >= 10_000 else 1000
    return f"{number // step}.{number % step // 100}.{number % 100}"


def figures(reader: OutputParser, cells: Mapping[str, str], line: int) -> dict[str, Quantity]:
    """Return the quantities of one place of one row."""
    found: dict[str, Quantity] = {}
    for column, token in cells.items():
        if column in COLUMNS:
            name, unit, scale = COLUMNS[column]
            value = reader.figure(column, token, line, scale)
            if value is not None:
                found[name] = Quantity(value, unit)
    return found


def wrong(reader: OutputParser, cell: str, line: int) -> int | None:
    """Return the wrong elements by the column `#wrong`. N/A is unchecked, never 0."""
    if cell == "N/A":
        return None
    value = reader.figure("#wrong", cell, line)
    return None if value is None else int(value)


def deviation(cell: str) -> int | None:
    """Return wrong elements by the column `error` of old versions, which is a deviation.

    The deviation 0 is right. An asterisk marks a value out of bounds.
    """
    if cell.endswith("*"):
        return 1
    return 0 if cell.strip("0.e+-") == "" and "0" in cell else None


def warn_about_ranks(reader: OutputParser, rows: tuple[BenchmarkRow, ...], tables: int) -> None:
    """Warn about the run as a whole: a single rank, or bandwidths of another number of ranks."""
    bandwidths = [row.figures["busbw"].value for row in rows if "busbw" in row.figures]
    if rows and all(row.ranks == 1 for row in rows):
        jobs = (
            f"{tables} single-rank jobs ran, not one of {tables} ranks (built without MPI?)" if tables > 1 else "1 rank"
        )
        reader.note_jobs(f"{jobs}: nothing moved, no figure is a bandwidth")
    elif bandwidths and not any(bandwidths) and any(row.figures.get("algbw", Quantity(0, "")).value for row in rows):
        reader.warnings.add("every busbw is 0: single-rank jobs, nothing moved")
    elif tables > 1:
        reader.note_jobs(f"{tables} jobs printed into one output")
    for row in rows:
        _hold(reader, row)


def _hold(reader: OutputParser, row: BenchmarkRow) -> None:
    """Hold a row's busbw against its algbw: rounding aside they differ by the factor of its ranks."""
    algbw, busbw = row.figures.get("algbw"), row.figures.get("busbw")
    known = factor(row.operation, row.ranks) if row.ranks else None
    if not (algbw and busbw and known) or row.ranks == 1:
        return
    expected = algbw.value * known
    if abs(busbw.value - expected) > 0.02 * expected + 0.06:
        said = quoted(f"{busbw.value:g} of {algbw.value:g}")
        reader.warnings.add(f"busbw is not what {row.ranks} ranks make of algbw in {row.operation}: {said}", row.line)


def without_bandwidth_of_one_rank(rows: tuple[BenchmarkRow, ...]) -> tuple[BenchmarkRow, ...]:
    """Remove the bandwidths of rows of a single rank."""
    bare = [
        {name: figure for name, figure in row.figures.items() if row.ranks != 1 or name not in ("algbw", "busbw")}
        for row in rows
    ]
    return tuple(
        BenchmarkRow(row.operation, row.point, row.ranks, kept, row.iterations, row.wrong, row.line)
        for row, kept in zip(rows, bare, strict=True)
    )


def merged(text: BenchmarkResult, document: tuple[BenchmarkRow, ...]) -> tuple[BenchmarkRow, ...]:
    """Return JSON's rows if there are any; they equal the table's with all digits."""
    return document or text.rows
