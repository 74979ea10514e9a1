"""Where in a log certain texts stand: what knowledge asks for besides the failure itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_hetgpu.logs.colours import without_colours
from pytest_hetgpu.logs.lines import parsed
from pytest_hetgpu.logs.scan import CHUNK, LONGEST_LINE
from pytest_hetgpu.logs.words import any_of
from pytest_hetgpu.signatures.base import LogLine


def passages(path: Path, wanted: Iterable[str]) -> Mapping[str, int]:
    """For each of the texts that the log holds, the number of the first line that holds it, from 1.

    Texts hold no line ends and have at most 1000 bytes. A missing log holds none. Raises OSError for one that cannot be
    read. What has been found is not looked for again, so that a text of every line costs no more than a rare one.
    """
    search = _Search({text.encode(): text for text in wanted if text})
    try:
        with path.open("rb", buffering=0) as log:
            kept = b""
            while search.missing and (chunk := log.read(CHUNK)):
                kept = search.through(without_colours(kept + chunk))
            search.through(kept, last=True)
    except FileNotFoundError:
        return {}
    return search.found


def lines(path: Path, first: int, last: int) -> tuple[LogLine, ...]:
    """The lines from number `first` to `last`, both in; lines of a log that was written over count as one.

    Raises OSError where the log cannot be read; an endless line is cut.
    """
    with path.open("rb") as log:
        number, found = 1, []
        while number < first and (chunk := log.read(CHUNK)):
            ends = chunk.count(b"\n")
            if number + ends >= first:
                at = _after(chunk, first - number)
                log.seek(at - len(chunk), os.SEEK_CUR)
                number = first
            else:
                number += ends
        while number <= last and (raw := log.readline(LONGEST_LINE)):
            found.append(parsed(raw, number))
            number += raw.endswith(b"\n")
    return tuple(found)


def _after(chunk: bytes, ends: int) -> int:
    """Where in the chunk the line begins that so many line ends precede."""
    at = 0
    for _ in range(ends):
        at = chunk.index(b"\n", at) + 1
    return at


class _Search:
    """What is still `missing`, by its bytes, and what was `found`; blocks come in order."""

    def __init__(self, missing: dict[bytes, str]) -> None:
        self.missing = missing
        self.found: dict[str, int] = {}
        self._line = 1

    def through(self, block: bytes, *, last: bool = False) -> bytes:
        """Looks through a block but for its last bytes, which may be the beginning of a text; returns those."""
        end = len(block) if last else max(0, len(block) - _OVERLAP)
        at = 0
        while self.missing and (hit := any_of(self.missing).search(block, at)) and hit.start() < end:
            self._line += block.count(b"\n", at, hit.start())
            at = hit.start()
            for text in [text for text in self.missing if block.startswith(text, at)]:
                self.found[self.missing.pop(text)] = self._line
        self._line += block.count(b"\n", at, end)
        return block[max(at, end) :]


_OVERLAP = 1000
