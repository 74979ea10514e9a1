"""Lines that may be wanted. They are kept until they are asked for: most runs end without the question."""

from __future__ import annotations

from collections.abc import Callable

from pytest_hetgpu.extensions.signatures.base import LogLine

_MOST = 256


class Candidates:
    """Lines in their order. `take` gets each line once, at the latest when there are many.

    `lines` are those that it has not yet got.
    """

    def __init__(self, take: Callable[[LogLine], None]) -> None:
        self._take = take
        self.lines: list[LogLine] = []

    def add(self, line: LogLine) -> None:
        """Keep a line."""
        self.lines.append(line)
        if len(self.lines) >= _MOST:
            self.search()

    def search(self) -> None:
        """Give away the lines that are kept."""
        lines, self.lines = self.lines, []
        for line in lines:
            self._take(line)
