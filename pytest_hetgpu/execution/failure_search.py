"""Search of the raw output for the pattern `failure` of a user's program, before anything is dropped or redacted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_hetgpu.analysis.logs.output import LONGEST_SEARCHED, RankLines, shown
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.output_patterns import CommandSettings, compiled, search_failure
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.program_output import OutputLine

_BLOCK = 1 << 20


class FailureSearch:
    """A search of bytes that arrive in order; `found` describes the first match, "" without one.

    Raises NotHere without RE2.
    """

    def __init__(self, expression: str, labels: str) -> None:
        self._expression = expression
        self._pattern = compiled(expression)
        self._lines = RankLines(labels)
        self._rest = b""
        self.found = ""

    def feed(self, data: bytes) -> None:
        """Search the next bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) >= LONGEST_SEARCHED:
            lines, self._rest = [*lines, self._rest], b""
        for line in () if self.found else lines:
            self._search(self._lines.feed(line + b"\n"))

    def finish(self) -> str:
        """Search what is left, and return `found`."""
        if not self.found:
            self._search(self._lines.feed(self._rest))
            self._search(self._lines.finish())
        return self.found

    def _search(self, lines: Iterator[tuple[int | None, bytes, int]]) -> None:
        for rank, raw, number in lines:
            if not self.found:
                text, hidden = shown(raw)
                self.found = search_failure(self._pattern, self._expression, OutputLine(text, number, rank, hidden))


def failure_search(job: Job) -> FailureSearch | None:
    """Return the search for a job, None if it has no pattern `failure`, or if this machine has no RE2."""
    foreign = job.demand.external
    if foreign is None or foreign.reader != "command":
        return None
    pattern = CommandSettings.model_validate_json(foreign.settings).failure
    try:
        return FailureSearch(pattern, foreign.labels) if pattern else None
    except NotHere:
        return None


def search_file(search: FailureSearch, path: Path) -> str:
    """Search a whole file and return the text of the first match. Raises OSError."""
    with path.open("rb") as log:
        while block := log.read(_BLOCK):
            search.feed(block)
    return search.finish()
