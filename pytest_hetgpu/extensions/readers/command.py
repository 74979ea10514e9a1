"""Parser for any program: figures by the user's own pattern, or by paths into its JSON.

`extensions/output_patterns.py` describes patterns and paths.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
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
)
from pytest_hetgpu.extensions.readers._suites import READERS
from pytest_hetgpu.extensions.readers.base import OutputParser, ParseIssues, ParseRequest, quoted, whole
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, ExitMeaning, Quantity
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import parse_size
from pytest_hetgpu.model.verdict import Kind

_LONGEST_LINE = 16_384
_LONGEST_DOCUMENT = 16 << 20
_MOST_FOUND = 10_000
_MOST_STARTS = 50
_DECODER = json.JSONDecoder()


class CommandParser(OutputParser):
    """A parser of the user's own patterns. Raises NotHere for patterns without an installed RE2."""

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
        self._suite = READERS[given.tests]() if given.tests else None
        self._succeeded = self._success is None
        self._failed = ""
        self._own: dict[str, str] = {}
        self._json: list[str] = []
        self._length = 0

    def feed(self, line: str, number: int = 0) -> None:
        if self.settings.json_numbers or self.settings.json_success:
            self._length += len(line)
            if self._length <= _LONGEST_DOCUMENT:
                self._json.append(line)
        # RE2 accepts UTF-8 only; half of a surrogate pair is not UTF-8.
        text = line[:_LONGEST_LINE].encode(errors="replace").decode()
        if self._failure and not self._failed and self._failure.search(text):
            self._failed = text.strip()[:200] or "the pattern of failure was found"
        if not self._succeeded and self._success and self._success.search(text):
            self._succeeded = True
        if self._suite:
            self._suite.feed(line[:_LONGEST_LINE])
        for item, pattern in self._patterns:
            if found := pattern.search(text):
                groups = {name: value for name, value in found.groupdict().items() if value}
                self._keep(item, groups, number)

    def finish(self) -> BenchmarkResult:
        self._document()
        failed = (self._failed,) if self._failed else ()
        unsaid = "" if self._succeeded else f"nothing fits {show(self.settings.success)}, which marks success"
        if (self._patterns or self.settings.json_numbers) and not self.rows:
            self.warnings.add("no figure was found")
        suite = self._suite.finish() if self._suite else None
        if self._suite and suite is None:
            unsaid = unsaid or f"the output has no results of tests ({self.settings.tests})"
        elif suite and suite.missing:
            unsaid = unsaid or str(suite)
        elif suite and suite.tests <= suite.skipped and not suite.failed:
            unsaid = unsaid or f"no test ran: the suite has {suite.tests}, of which {suite.skipped} were skipped"
        found = BenchmarkResult(self.tool, "", self._ordered(), self.warnings.texts, failed, missing_success=unsaid)
        return replace(found, suite=suite, own=self._own)

    def _ordered(self) -> tuple[BenchmarkRow, ...]:
        """Return the rows in the order of the patterns."""
        order = {name: place for place, name in enumerate(dict.fromkeys(one.named for one in self.settings.figures))}
        return tuple(sorted(self.rows, key=lambda row: order.get(next(iter(row.figures)), len(order))))

    @staticmethod
    def meaning_of_exit(code: int, reading: BenchmarkResult) -> ExitMeaning | None:
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
        # The tests that failed before are in the report; why it was stopped comes first.
        return cls.meaning_of_exit(0, replace(reading, missing_success="", suite=None))

    def _keep(self, item: Figures, groups: Mapping[str, str], line: int) -> None:
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

    def _document(self) -> None:
        if not (self.settings.json_numbers or self.settings.json_success):
            return
        if self._length > _LONGEST_DOCUMENT:
            self.warnings.add(f"more than {_LONGEST_DOCUMENT >> 20} MiB of JSON: it is not read")
            return
        root = _parsed("\n".join(self._json))
        if root is None:
            self.warnings.add("no JSON that can be read")
        path = self.settings.json_success
        if path and next(_values(root, path), None) not in (True, "true"):
            self._failed = self._failed or f"{path} is not true"
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
