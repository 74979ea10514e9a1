"""Parser for any program: figures by the user's own pattern, or by paths into its JSON.

`extensions/output_patterns.py` describes patterns and paths.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_hetgpu.extensions import units
from pytest_hetgpu.extensions.output_patterns import (
    BENCHMARK_METRICS,
    CommandSettings,
    Figures,
    Number,
    ReaderSettings,
    compiled,
    metric_of,
    search_failure,
    utf8,
)
from pytest_hetgpu.extensions.readers._suites import READERS, SuiteReader, merged
from pytest_hetgpu.extensions.readers.base import OutputParser, ParseIssues, ParseRequest, quoted, whole
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.program_output import (
    BenchmarkResult,
    BenchmarkRow,
    ExitMeaning,
    OutputLine,
    Quantity,
    SuiteResult,
)
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import parse_size
from pytest_hetgpu.model.verdict import Kind

_LONGEST_SUITE_LINE = 16_384
_LONGEST_DOCUMENT = 16 << 20
_MOST_FOUND = 10_000
_MOST_STARTS = 50
_MOST_SOURCES = 100_000
_DECODER = json.JSONDecoder()


class CommandParser(OutputParser):
    """A parser of the user's own patterns. Raises NotHere for patterns without an installed RE2.

    A failure on any rank counts. Success is counted per rank: one must show it, or each of them (`proof: each`).
    """

    Settings = CommandSettings
    settings: CommandSettings
    tool = "command"
    cure_of_second = " (give each table its own `operation` or `metric`, let one rank print it, or set `repeats: true`)"

    def __init__(self, asked: ParseRequest | None = None, settings: ReaderSettings | None = None) -> None:
        super().__init__(asked, settings)
        given = self.settings
        self._patterns = [(item, compiled(item.pattern)) for item in given.patterns]
        self._success = compiled(given.success) if given.success else None
        self._failure = compiled(given.failure) if given.failure else None
        self._refuted = ""
        self._sources: dict[int | None, _Source] = {}
        self._own: dict[str, str] = {}

    def feed(self, line: str, number: int = 0) -> None:
        self.read(OutputLine(line, number))

    def read(self, line: OutputLine) -> None:
        given = self.settings
        if self._failure and not self._refuted:
            self._refuted = search_failure(self._failure, given.failure or "", line)
        if line.text is None:
            return
        source = self._source(line.rank)
        if given.json_numbers or given.json_success:
            source.keep(line.text)
        text = utf8(line.text)
        if not source.said and self._success and self._success.search(text):
            source.said = True
        if source.suite:
            source.suite.feed(line.text[:_LONGEST_SUITE_LINE])
        for item, pattern in self._patterns:
            if found := pattern.search(text):
                groups = {name: value for name, value in found.groupdict().items() if value}
                self._keep(item, groups, line.number, line.rank)

    def _source(self, rank: int | None) -> _Source:
        if rank not in self._sources:
            if len(self._sources) >= _MOST_SOURCES:
                self.warnings.add(f"more than {_MOST_SOURCES:,} ranks: the rest is not read")
                return next(iter(self._sources.values()))
            suite = READERS[self.settings.tests]() if self.settings.tests else None
            self._sources[rank] = _Source("" if rank is None else f" on rank {rank}", suite)
        return self._sources[rank]

    def finish(self) -> BenchmarkResult:
        sources = [source for _, source in sorted(self._sources.items(), key=lambda one: (one[0] is None, one[0] or 0))]
        for source in sources:
            source.finish(self.settings.json_success)
            self._refuted = self._refuted or source.refuted
        if self.settings.json_numbers or self.settings.json_success:
            self._numbers_of(sources)
        if (self._patterns or self.settings.json_numbers) and not self.rows:
            self.warnings.add("no figure was found")
        results = [source.result for source in sources if source.result]
        return BenchmarkResult(
            self.tool,
            rows=self._ordered(),
            warnings=self.warnings.texts,
            failed=(self._refuted,) if self._refuted else (),
            missing_success=next(self._missing_success(sources), ""),
            suite=merged(results) if results else None,
            refuted=self._refuted,
            proof=self._proof(sources),
            own=self._own,
        )

    def _proof(self, sources: Sequence[_Source]) -> str:
        """Return `1 of 2 ranks`; "" if all ranks showed success, or if the output has no labels."""
        asked = self.settings.success or self.settings.json_success or self.settings.tests
        found = sum(source.succeeded for rank, source in self._sources.items() if rank is not None)
        return f"{found} of {self.request.world} ranks" if asked and 0 < found < self.request.world else ""

    def _missing_success(self, sources: Sequence[_Source]) -> Iterator[str]:
        """Yield each success that the settings require and the output lacks."""
        given, each, world = self.settings, self.settings.proof == "each", self.request.world
        if each and world > 1 and sources and set(self._sources) == {None}:
            yield "`proof: each` cannot be judged: the launcher does not label output by rank"
        asked = (
            (given.success, f"nothing fits {show(given.success)}, which marks success", [one.said for one in sources]),
            (given.json_success, f"{given.json_success} is not true", [one.true for one in sources]),
            (given.tests, f"no results of tests ({given.tests}) in the output", [bool(one.result) for one in sources]),
        )
        for setting, lacking, shown in asked:
            found = sum(shown) if setting else world
            if not found:
                yield lacking
            elif each and found < world:
                yield f"{lacking} on {world - found} of {world} ranks (`proof: each`)"
        yield from (f"{source.unfinished}{source.where}" for source in sources if source.unfinished)
        suites = [source.result for source in sources if source.result]
        idle = [suite for suite in suites if suite.tests <= suite.skipped and not suite.failed]
        if idle and (each or len(idle) == len(suites)):
            yield f"no test ran: the suite has {idle[0].tests}, of which {idle[0].skipped} were skipped"

    def _ordered(self) -> tuple[BenchmarkRow, ...]:
        """Return the rows in the order of the patterns."""
        order = {name: place for place, name in enumerate(dict.fromkeys(one.named for one in self.settings.figures))}
        return tuple(sorted(self.rows, key=lambda row: order.get(next(iter(row.figures)), len(order))))

    @staticmethod
    def meaning_of_exit(code: int, reading: BenchmarkResult) -> ExitMeaning | None:
        if reading.refuted:
            return ExitMeaning(Kind.WRONG_RESULT, reading.refuted)
        if reading.suite and reading.suite.failed:
            return ExitMeaning(Kind.WRONG_RESULT, str(reading.suite))
        # A failed program may have ended before its message of success.
        if code:
            return ExitMeaning(Kind.ERROR, f"exit code {code}")
        found = OutputParser.meaning_of_exit(code, reading)
        return (
            ExitMeaning(Kind.WRONG_RESULT, reading.missing_success)
            if reading.missing_success and found is None
            else found
        )

    @classmethod
    def meaning_of_stop(cls, reading: BenchmarkResult) -> ExitMeaning | None:
        # A suite that was stopped may give up, or lack tests. A test that had failed before remains failed.
        suite = reading.suite if reading.suite and reading.suite.failed_tests else None
        return cls.meaning_of_exit(0, replace(reading, missing_success="", suite=suite))

    def _keep(self, item: Figures, groups: Mapping[str, str], line: int, rank: int | None = None) -> None:
        written = groups.get("unit", item.unit)
        metric = groups.get("metric") or item.metric or metric_of(written)
        name, scale = self._unit(metric, written, item.unit)
        value = self.figure(metric, groups.get("value", "").replace(",", ""), line, scale)
        size = _size(groups["size"], self.warnings, line) if "size" in groups else item.size
        if value is None or size is None:
            return
        wrong = self.figure("wrong", groups["wrong"], line) if "wrong" in groups else None
        ranks = whole(groups["ranks"]) if "ranks" in groups else self.request.ranks
        self.add(
            BenchmarkRow(
                groups.get("operation") or item.operation or self.request.operation,
                MessagePoint(size, groups.get("dtype") or item.dtype, self.request.place),
                ranks,
                {metric: Quantity(value, name)},
                whole(groups.get("iterations", "")),
                None if wrong is None else int(wrong),
                line,
            ),
            repeats=item.repeats,
            rank=rank,
        )
        if metric not in BENCHMARK_METRICS:
            self._own[metric] = item.better or ""

    @staticmethod
    def _unit(metric: str, written: str, wanted: str) -> tuple[str, float]:
        """Return the unit for a number and the factor into it; a metric of the user's own keeps the user's unit."""
        found, own = units.known(written), units.known(wanted)
        if found is None:
            return written, 1.0
        if metric in BENCHMARK_METRICS:
            return found
        return (wanted, found[1] / own[1]) if own and own[0] == found[0] else found

    def _numbers_of(self, sources: Sequence[_Source]) -> None:
        """Keep the figures in the document of the first rank that printed one."""
        if any(source.too_long for source in sources):
            self.warnings.add(f"more than {_LONGEST_DOCUMENT >> 20} MiB of JSON: it is not read")
            return
        root = next((source.root for source in sources if source.root is not None), None)
        if root is None:
            self.warnings.add("no JSON that can be read")
        for item in self.settings.json_numbers:
            self._numbers(root, item)

    def _numbers(self, root: Any, item: Number) -> None:
        found = list(itertools.islice(_values(root, item.path), _MOST_FOUND))
        sizes = list(itertools.islice(_values(root, item.sizes), _MOST_FOUND)) if item.sizes else []
        if item.sizes and len(sizes) != len(found):
            self.warnings.add(f"{len(found)} figures at {item.path}, and {len(sizes)} sizes at {item.sizes}")
            return
        if not found:
            self.warnings.add(f"nothing at {item.path}")
        for index, value in enumerate(found):
            groups = {"value": str(value)} | ({"size": str(sizes[index])} if sizes else {})
            self._keep(item, groups, 0)


class _Source:
    """The output of one rank, or all of it if the launcher puts no labels; `where` names the rank.

    Attributes:
        said: the pattern of success was found.
        true: the value that must be true is true.
        result: result of its tests.
        unfinished: reason why its tests did not end, "" if they did.
        refuted: the value that must be true is something else.

    """

    def __init__(self, where: str, suite: SuiteReader | None) -> None:
        self.where = where
        self.suite = suite
        self.said = self.true = self.too_long = False
        self.result: SuiteResult | None = None
        self.unfinished = self.refuted = ""
        self.root: Any = None
        self._lines: list[str] = []
        self._length = 0

    @property
    def succeeded(self) -> bool:
        """Whether it shows success by any of the means that count."""
        ran = self.result is not None and not self.unfinished and not self.result.failed
        return self.said or self.true or ran

    def keep(self, line: str) -> None:
        """Keep a line that may be part of a document."""
        self._length += len(line)
        if self._length <= _LONGEST_DOCUMENT:
            self._lines.append(line)

    def finish(self, path: str | None) -> None:
        """Read the document, with the value at `path`, and the result of the tests."""
        self.too_long = self._length > _LONGEST_DOCUMENT
        self.root = None if self.too_long else _parsed("\n".join(self._lines))
        values = list(itertools.islice(_values(self.root, path), _MOST_FOUND)) if path else []
        self.true = bool(values) and all(value in (True, "true") for value in values)
        self.refuted = f"{path} is not true{self.where}" if values and not self.true else ""
        self.result = self.suite.finish() if self.suite else None
        if self.suite and self.result and not self.result.failed:
            self.unfinished = str(self.result) if self.result.missing else self.suite.unfinished


def _size(text: str, notes: ParseIssues, line: int) -> int | None:
    if text == "0":
        return 0
    try:
        return parse_size(text)
    except ValueError:
        notes.add(f"the size is {quoted(text)}", line)
        return None


def _parsed(text: str) -> Any:
    """Parse the output as JSON: all of it, else the last line that is JSON, else the first document."""
    lines = text.splitlines()
    for candidate in itertools.chain([text], reversed(lines[-100:])):
        if candidate.lstrip()[:1] not in ("{", "["):
            continue
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    return _among_others(lines)


def _among_others(lines: list[str]) -> Any:
    """Return a document over several lines with other lines around it; None without one."""
    starts = [place for place, line in enumerate(lines) if line[:1] in ("{", "[")][:_MOST_STARTS]
    for start in starts:
        try:
            found, _ = _DECODER.raw_decode("\n".join(lines[start:]))
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) or (isinstance(found, list) and found):
            return found
    return None


def _values(root: Any, path: str) -> Iterator[Any]:
    """Yield everything at a path, in the document's order."""
    name, _, rest = path.partition(".")
    if isinstance(root, list):
        inner = root if name == "*" else root[int(name) : int(name) + 1] if whole(name) is not None else []
    elif isinstance(root, dict):
        inner = list(root.values()) if name == "*" else [root[name]] if name in root else []
    else:
        inner = []
    for value in inner:
        yield from _values(value, rest) if rest else (value,)
