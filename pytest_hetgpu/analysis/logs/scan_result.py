"""Result of a pass over a log, and the course of its run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from pytest_hetgpu.analysis.logs.line_index import LineIndex
from pytest_hetgpu.analysis.logs.lines import parse_line, strip_controls
from pytest_hetgpu.analysis.logs.outline import Alarms, Attempts, first_rank_line
from pytest_hetgpu.analysis.logs.program_lines import last_program_line
from pytest_hetgpu.analysis.logs.records import Records
from pytest_hetgpu.analysis.logs.success import Proof, Success, SuccessSigns, passed_tests, signs_at_end
from pytest_hetgpu.analysis.run_model import Course, Reader
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, Process
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

ENDED_WITH = "hetgpu: the launcher ended with exit code "
"""Beginning of the last line of a failed run's log, as this package writes it."""


@dataclass(frozen=True)
class ScanResult:
    """Result of one pass over a log; `matches` are in the order of parsers, not yet by priority.

    `failed` describes exceptions of parsers, `early` are the signs of success with triggers.
    Outside of the ranges of bytes `parts` the log holds none of the texts that were searched for.
    """

    records: Records
    matches: tuple[FailureMatch, ...]
    exits: tuple[RankExit, ...]
    failed: tuple[str, ...]
    versions: Mapping[str, str]
    head: tuple[str, ...]
    tail: tuple[str, ...]
    lines: int
    attempts: Attempts = field(default_factory=Attempts)
    alarms: Alarms = field(default_factory=Alarms)
    early: SuccessSigns = field(default_factory=SuccessSigns)
    prefix: re.Pattern[str] | None = None
    line_index: LineIndex | None = None
    parts: Sequence[tuple[int, int]] | None = None
    incompatible: tuple[str, ...] = ()

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The first and last lines without the learned prefix, then also without known ones."""
        whole = [self._without_learned(line) for line in (*self.head, *self.tail)]
        return (*whole, *(parse_line(line, 0).text for line in whole))

    def _without_learned(self, line: str) -> str:
        return line if self.prefix is None else self.prefix.sub("", strip_controls(line), count=1)

    def reader(self, path: Path) -> Reader:
        """Return a reader of the log's lines; `path` is that of the scanned log."""
        from pytest_hetgpu.analysis.logs.text_search import read_lines

        return partial(read_lines, path, prefix=self.prefix, line_index=self.line_index)

    @cached_property
    def signs(self) -> tuple[Success, ...]:
        """The signs of success in the order of lines; in the last lines weaker ones count, too."""
        if self._some_not_done:
            return ()
        first = self.lines - len(self.tail) + 1
        early = (sign for sign in self.early.found if sign.line < first and sign.proof is not Proof.WORDS)
        return (*early, *signs_at_end(self._last_lines))

    @cached_property
    def tests(self) -> Success | None:
        """The last report of tests that passed."""
        if self._some_not_done:
            return None
        return next(filter(None, map(passed_tests, reversed(self._last_lines))), None) or self.early.tests

    @property
    def _some_not_done(self) -> bool:
        """Whether ranks that report their ends are missing: nothing that others print shows success then."""
        size = max((hello.size for hello in self.records.hellos.values()), default=0)
        return size > 0 and len(self.records.done) < size

    @cached_property
    def _last_lines(self) -> Sequence[LogLine]:
        first = self.lines - len(self.tail) + 1
        return [parse_line(text, number, self.prefix) for number, text in enumerate(self.tail, first)]

    @cached_property
    def started(self) -> int | None:
        """The first line of a rank; None if no rank shows itself."""
        return first_rank_line(self.head, (parse_line(text, 0, self.prefix).text for text in self.head))

    @cached_property
    def exit_status(self) -> tuple[Signature, ...]:
        """The failure that the launcher's exit code shows in a log of this package; empty for another log."""
        for place, text in enumerate(reversed(self.tail)):
            code = text.removeprefix(ENDED_WITH)
            if code != text and code.isdecimal():
                line = self.lines - place
                return (Signature(Kind.ERROR, f"exit@{code}", text, line, detail=f"exit code {code}"),)
        return ()

    @property
    def ranks(self) -> Mapping[Process, int]:
        """Rank of each process, as the process reports it."""
        return {(hello.host.split(".")[0], hello.pid): rank for rank, hello in self.records.hellos.items()}

    def survived(self, match: FailureMatch) -> bool:
        """Return whether a line that only the program can have written follows a match."""
        if match.priority >= Priority.CONSEQUENCE:
            return True
        last = self._last_of_program
        return last is not None and last > match.signature.line

    @cached_property
    def _last_of_program(self) -> int | None:
        """The number of the program's last own line in the tail."""
        first = self.lines - len(self.tail) + 1
        told = {other.signature.line - first for other in self.matches}
        place = last_program_line([line.text for line in self._last_lines], told)
        return None if place is None else first + place

    def course(self, path: Path) -> Course:
        """Return the course of the run; `path` is that of the scanned log."""
        return Course(
            self.attempts,
            self.alarms,
            self.lines,
            read=self.reader(path),
            read_signs=lambda: self.signs,
            read_tests=lambda: self.tests,
            read_start=lambda: self.started,
        )
