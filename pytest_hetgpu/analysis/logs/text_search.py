"""Search of a log for texts of known failures that stand beside the failure itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from io import FileIO
from pathlib import Path

from pytest_hetgpu.analysis.logs.colours import without_colours
from pytest_hetgpu.analysis.logs.line_index import LineIndex
from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.analysis.logs.scan import CHUNK, LONGEST_LINE
from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.model.multi_pattern import any_of


def find_texts(path: Path, wanted: Iterable[str], parts: Sequence[tuple[int, int]] | None = None) -> Mapping[str, int]:
    """Return the first line number, from 1, of each text that the log holds.

    `parts` are ranges of bytes outside of which the log is known to hold none; None means the whole log. Texts hold no
    line ends and have at most 1000 bytes. A missing log holds none. Raise OSError if the log cannot be read. A text
    that was found is not searched again, so that frequent texts cost no more than rare ones.
    """
    missing = {text.encode(): text for text in wanted if text}
    try:
        with path.open("rb", buffering=0) as log:
            return _Search(missing, log).found(((0, None),) if parts is None else parts)
    except FileNotFoundError:
        return {}


def read_lines(
    path: Path,
    first: int,
    last: int,
    prefix: re.Pattern[str] | None = None,
    line_index: LineIndex | None = None,
) -> tuple[LogLine, ...]:
    """Return the lines from number `first` to `last`, both included; an overwritten line counts as one.

    `prefix` and `line_index` are those of the log's scan. Without an index the log is read from its start.
    Raise OSError if the log cannot be read; an endless line is cut.
    """
    found = []
    number, start = line_index.before(first) if line_index else (1, 0)
    with path.open("rb") as log:
        log.seek(start)
        while number < first and (chunk := log.read(CHUNK)):
            ends = chunk.count(b"\n")
            if number + ends >= first:
                at = _after(chunk, first - number)
                log.seek(at - len(chunk), os.SEEK_CUR)
                number = first
            else:
                number += ends
        while number <= last and (raw := log.readline(LONGEST_LINE)):
            found.append(parse_line(raw, number, prefix))
            number += raw.endswith(b"\n")
    return tuple(found)


def _after(chunk: bytes, ends: int) -> int:
    """Return the start of the line after so many line ends."""
    low, high = 0, len(chunk)
    while high - low > _FEW:
        middle = (low + high) // 2
        before = chunk.count(b"\n", low, middle)
        low, high, ends = (low, middle, ends) if before >= ends else (middle, high, ends - before)
    for _ in range(ends):
        low = chunk.index(b"\n", low) + 1
    return low


class _Ends:
    """Counts line ends in a file when it is asked to: most texts are in few logs."""

    def __init__(self, log: FileIO) -> None:
        self._log = log.fileno()
        self._at = 0
        self._ends = 0

    def before(self, place: int) -> int:
        """Return the number of line ends before this byte; positions never decrease."""
        while self._at < place and (chunk := os.pread(self._log, min(CHUNK, place - self._at), self._at)):
            self._ends += chunk.count(b"\n")
            self._at += len(chunk)
        return self._ends


class _Search:
    """A pass over a file for texts, each given by its bytes."""

    def __init__(self, missing: dict[bytes, str], log: FileIO) -> None:
        self._missing = missing
        self._log = log
        self._ends = _Ends(log)
        self._found: dict[str, int] = {}

    def found(self, parts: Iterable[tuple[int, int | None]]) -> Mapping[str, int]:
        """Return the line numbers of the texts that were found in ranges of bytes; None is the end of the log."""
        for start, end in parts:
            self._log.seek(start)
            kept, read = b"", start
            while self._missing and (chunk := self._log.read(CHUNK if end is None else min(CHUNK, end - read))):
                kept = self._through(kept, chunk, read)
                read += len(chunk)
            self._through(kept, b"", read)
        return self._found

    def _through(self, kept: bytes, chunk: bytes, start: int) -> bytes:
        """Search the kept bytes and the chunk that begins at `start`; an empty chunk is the last.

        Return the last bytes, which may begin a text.
        """
        block, at = without_colours(kept + chunk), 0
        end = max(0, len(block) - _OVERLAP) if chunk else len(block)
        while self._missing and (hit := any_of(self._missing).search(block, at)) and hit.start() < end:
            at = hit.start()
            before = self._ends.before(start) - kept.count(b"\n")
            for text in [text for text in self._missing if block.startswith(text, at)]:
                self._found[self._missing.pop(text)] = before + block.count(b"\n", 0, at) + 1
        return block[max(at, end) :]


_OVERLAP = 1000
_FEW = 1000
