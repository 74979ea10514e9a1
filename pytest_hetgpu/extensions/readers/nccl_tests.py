"""nccl-tests and rccl-tests: the printed table, and the document of `-J`.

Formats: src/util.cu (`writeDeviceReport`, `writeResultHeader`, `writeBenchmarkLine*`, `writePerIterReport`,
`writeResultFooter`, json*) and src/common.h (exit codes) of NVIDIA/nccl-tests 2.19.6; src/common.cu of ROCm/rccl-tests
of 2024. Columns are identified by the names in the header. So these tables need no special cases: 13 columns, 21
columns (`-I 1`), rccl-tests' in-place-only table, and releases before `root`.

`time` is in us, GB/s are 1e9, the size is the definition's. `#wrong` is N/A if nothing was checked: with `-c 0`, and in
place for alltoall, alltoallv and sendrecv. `Out of bounds values : 0 OK` is printed below such a table too. Times are
means over ranks (`-a` chooses). `cputime` (`-C 1`) is the host's, but its algbw is that of the whole operation. "Avg
bus bandwidth" is a mean over all sizes and both places and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pytest_hetgpu.extensions.output_patterns import ReaderSettings
from pytest_hetgpu.extensions.readers import _nccl
from pytest_hetgpu.extensions.readers._nccl_json import NcclDocument
from pytest_hetgpu.extensions.readers.base import LONGEST_LINE, OutputParser, ParseRequest, number, quoted, whole
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, ExitMeaning
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind

_VERSION = re.compile(r"# ([nr]ccl)-tests version (\S+)(?: [nr]ccl-headers=\d+ [nr]ccl-library=(\d+))?")
_RCCL_VERSION = re.compile(r"(?:# )?rccl-tests: Version (\S+)")
_STARTING = re.compile(r"# Collective test starting: (\S+)")
_BANNER = re.compile(
    r"# nThread (\d{1,9}) nGpus (\d{1,9}) .*? iters: (\d{1,9}) agg iters: (\d{1,9}) validation: (\d{1,9})"
)
_DEVICE = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+ on\s+\S+ device")
_FOOTER = re.compile(r"# ?Out of bounds values\s+: (\d+) (OK|FAILED)")
_SLOW = re.compile(r"# ?Avg bus bandwidth\s+: \S+ FAILED")

# A line of NCCL's log that begins behind the last printed cell of a row.
_LOGGED = re.compile(r"(?<=[\dA])[A-Za-z][\w.-]{0,100}:\d+:\d+ \[\d+\] NCCL ")

_BASE = ("size", "count", "type", "redop", "root")
_FIRST = ("time", "cputime")
_GROUP = {*_FIRST, "algbw", "busbw", "#wrong", "error", *_nccl.COLUMNS}
_UNITS = {"(B)", "(elements)", "(us)", "(GB/s)", "(%)"}
_CODES = {
    1: (Kind.ERROR, "an internal error"),
    2: (Kind.ERROR, "a call to CUDA failed"),
    3: (Kind.ERROR, "a call to NCCL failed"),
    4: (Kind.TIMEOUT, "its own time limit was over (-T)"),
    5: (Kind.ERROR, "not implemented, or fewer GPUs than asked for"),
    6: (Kind.ERROR, "wrong usage"),
    7: (Kind.WRONG_RESULT, "wrong data, or slower than NCCL_TESTS_MIN_BW"),
}


class NcclTestsParser(OutputParser):
    """A parser of the table, and of the document of `-J` if it is in the text.

    The document's rows replace the table's.
    """

    tool = "nccl-tests"
    prints = {"cpu_time": "us"}

    def __init__(self, asked: ParseRequest | None = None, settings: ReaderSettings | None = None) -> None:
        super().__init__(asked, settings)
        self._reading = BenchmarkResult(self.tool)
        self._operation = _nccl.asked_operation(self.request)
        self._places: tuple[str, ...] = ("", "in")
        self._base: tuple[str, ...] = ()
        self._groups: tuple[tuple[str, ...], ...] = ()
        self._header = 0
        self._tables = 0
        self._closed = 0
        self._groups_of_devices: list[str] = []
        self._iterations: int | None = None
        self._failed: list[str] = []
        self._pending: tuple[list[str], int] | None = None
        self._document = NcclDocument(self)

    @classmethod
    def measures(cls, asked: ParseRequest) -> str:
        return _nccl.asked_operation(asked) or cls.tool

    def feed(self, line: str, number: int = 0) -> None:
        if self._document.accept(line):
            return
        text = line[:LONGEST_LINE].strip()
        if logged := _LOGGED.search(text):
            text = text[: logged.start()]
        if text.startswith(("#", "rccl-tests:")):
            self._comment(text, number)
        elif text[:1].isdigit():
            self._row(text, number)

    def finish(self) -> BenchmarkResult:
        self._flush()
        documented = self._document.rows()
        rows = _nccl.merged(replace(self._reading, rows=self.rows), documented)
        if not documented:
            self.require_rows(self._header)
            if self._header and self._closed < self._tables:
                self.warnings.add("the table is not closed: the program did not come to its end")
        tables = max(self._tables, 1) if not documented else 1
        _nccl.warn_about_ranks(self, rows, tables)
        failed = tuple(dict.fromkeys((*self._failed, *self._document.failed)))
        if any("Out of bounds" in said for said in failed) and rows and not any(row.wrong for row in rows):
            self.warnings.add("the summary counts wrong data, and no row does")
        return replace(
            self._document.with_library_version(self._reading),
            rows=_nccl.without_bandwidth_of_one_rank(rows),
            warnings=self.warnings.texts,
            failed=failed,
            slow=self._reading.slow or self._document.slow,
        )

    @staticmethod
    def meaning_of_exit(code: int, reading: BenchmarkResult) -> ExitMeaning | None:
        if code in (0, 7) or reading.tool != "nccl-tests":
            if reading.wrong or (reading.failed and not reading.slow):
                return ExitMeaning(Kind.WRONG_RESULT, "; ".join(reading.failed) or "data failed its check")
            if reading.slow:
                return ExitMeaning(Kind.SLOW, "slower than NCCL_TESTS_MIN_BW")
        if not code:
            return None
        # rccl-tests has 0 and 1 only.
        known = _CODES.get(code) if reading.tool == "nccl-tests" else None
        return (
            ExitMeaning(known[0], f"exit code {code}: {known[1]}")
            if known
            else ExitMeaning(Kind.ERROR, f"exit code {code}")
        )

    def _comment(self, text: str, line: int) -> None:
        if found := _VERSION.match(text):
            library = _nccl.library_version(found[3] or "")
            versions = {found[1]: library} if library else {}
            self._reading = replace(self._reading, tool=f"{found[1]}-tests", version=found[2], versions=versions)
        elif found := _RCCL_VERSION.match(text):
            self._reading = replace(self._reading, tool="rccl-tests", version=found[1])
        elif found := _STARTING.match(text):
            self._operation = _nccl.operation(found[1]) or self._operation
        elif found := _BANNER.match(text):
            self._iterations = int(found[3]) * max(int(found[4]), 1)
        elif text.startswith("# Using devices"):
            self._groups_of_devices = []
        elif found := _DEVICE.match(text):
            self._groups_of_devices.append(found[2] or "")
        elif found := _FOOTER.match(text):
            self._closed += 1
            self._failed += [text.lstrip("# ")] if found[2] == "FAILED" else []
        elif _SLOW.match(text):
            self._reading = replace(self._reading, slow=True)
            self._failed.append(text.lstrip("# "))
        else:
            self._names(text, line)

    def _names(self, text: str, line: int) -> None:
        """Read the header lines: the places, the columns and their units."""
        words = text[1:].split()
        if words and set(words) <= {"out-of-place", "in-place", "(+", "per-iteration)"}:
            self._places = tuple("" if word == "out-of-place" else "in" for word in words if word.endswith("-place"))
        elif words[:1] == ["(B)"] and not set(words) <= {*_UNITS, "%Y-%m-%d", "%H:%M:%S"}:
            self.warnings.add(f"units that are not known: {quoted(text)}; the rows are not read", line)
            self._groups = ()
        elif words[:2] == ["size", "count"]:
            self._header = line or 1
            self._tables += 1
            self._columns(words, text, line)

    def _columns(self, words: list[str], text: str, line: int) -> None:
        self._flush()
        words = [word for word in words if word != "timestamp"]
        first = next((index for index, word in enumerate(words) if word in _FIRST), len(words))
        groups = list(_split(words[first:]))
        fits = set(words[:first]) <= set(_BASE) and "type" in words[:first] and 0 < len(groups) <= len(self._places)
        if not fits or not all(set(group) <= _GROUP for group in groups):
            self.warnings.add(f"unlike any header: {quoted(text)}; its rows are not read", line)
            groups = []
        self._base, self._groups = tuple(words[:first]), tuple(groups)

    def _row(self, text: str, line: int) -> None:
        tokens = text.split()
        if self._pending and len(tokens) % 4 == 0 and all(map(_like_cell, tokens)):
            (before, first), self._pending = self._pending, None
            self._take([*before, *tokens], first)
        elif len(tokens) > 2 and whole(tokens[0]) is not None and whole(tokens[1]) is not None:
            self._flush()
            if self._groups:
                self._take(tokens, line)
            elif not self._header:
                self.note_headless_row(line)

    def _take(self, tokens: list[str], line: int) -> None:
        """Collect a row that is printed piece by piece. Lines of the library may interrupt it."""
        if len(tokens) < len(self._base) + sum(map(len, self._groups)):
            self._pending = (tokens, line)
        else:
            self._cells(tokens, line)

    def _flush(self) -> None:
        """Keep the complete places of a row that breaks off, with a warning."""
        if self._pending:
            (tokens, line), self._pending = self._pending, None
            owed = len(self._base) + sum(map(len, self._groups))
            self.warnings.add(f"a row breaks off after {len(tokens)} of {owed} columns", line)
            self._cells(tokens, line)

    def _cells(self, tokens: list[str], line: int) -> None:
        size, cells = whole(tokens[0]) or 0, tokens[len(self._base) :]
        dtype = dict(zip(self._base, tokens, strict=False)).get("type", "")
        for place, group in zip(self._places, self._groups, strict=False):
            if len(cells) < len(group):
                return
            named = dict(zip(group, cells, strict=False))
            cells = cells[len(group) :]
            if not all(map(_like_cell, named.values())):
                self.warnings.add("a row that something else was printed into", line)
                return
            self._keep(MessagePoint(size, _nccl.TYPES.get(dtype, dtype), place), named, line)

    def _keep(self, point: MessagePoint, cells: dict[str, str], line: int) -> None:
        wrong = (
            _nccl.wrong(self, cells["#wrong"], line) if "#wrong" in cells else _nccl.deviation(cells.get("error", ""))
        )
        figures = _nccl.figures(self, cells, line)
        self.add(BenchmarkRow(self._operation, point, self._ranks(), figures, self._iterations, wrong, line))

    def _ranks(self) -> int | None:
        """Return the ranks in the group of rank 0, which prints this table.

        Without a list of devices, return the requested ranks.
        """
        groups = self._groups_of_devices
        seen = groups.count(groups[0]) if groups else self.request.ranks
        if seen and self.request.ranks not in (None, seen):
            self.warnings.add(f"{self.request.ranks} ranks were asked for, the job has {seen}")
        return seen


def _split(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield one group of columns per place; each begins with its time."""
    group: list[str] = []
    for word in words:
        if word in _FIRST and group:
            yield tuple(group)
            group = []
        group.append(word)
    if group:
        yield tuple(group)


def _like_cell(cell: str) -> bool:
    return cell == "N/A" or number(cell.rstrip("*")) is not None
