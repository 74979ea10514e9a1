"""Search of the raw output for the pattern `failure` of a user's program, before anything is dropped or redacted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_hetgpu.analysis.logs.output import LONGEST_SEARCHED, RankLines, shown
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.output_patterns import CommandSettings, compiled, search_failure
from pytest_hetgpu.model.external_program import ExternalProgram
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

    def file(self, path: Path) -> str:
        """Search a whole file and return `found`. Raises OSError."""
        with path.open("rb") as log:
            while block := log.read(_BLOCK):
                self.feed(block)
        return self.finish()

    def _search(self, lines: Iterator[tuple[int | None, bytes, int]]) -> None:
        for rank, raw, number in lines:
            if not self.found:
                text, hidden = shown(raw)
                self.found = search_failure(self._pattern, self._expression, OutputLine(text, number, rank, hidden))


def failure_search(foreign: ExternalProgram) -> FailureSearch | None:
    """Return the search for a program, None if it has no pattern `failure`, or if this machine has no RE2."""
    if foreign.reader != "command":
        return None
    pattern = CommandSettings.model_validate_json(foreign.settings).failure
    try:
        return FailureSearch(pattern, foreign.labels) if pattern else None
    except NotHere:
        return None
