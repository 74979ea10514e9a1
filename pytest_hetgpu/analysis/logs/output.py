"""Lines that programs themselves print, for parsers of all of them: bounded, and without debug noise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_hetgpu.analysis.logs.colours import without_colours
from pytest_hetgpu.analysis.logs.frames import MARK, FrameReader
from pytest_hetgpu.analysis.logs.scan import LONGEST_LINE
from pytest_hetgpu.model.multi_pattern import any_of

MOST_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class StartedProgram:
    """A rank's report on the program that it started: its `path`, "" if none of the files in `looked` exists.

    `versions` are those of libraries that belong to the program. `exits` is whether the rank reports the program's end,
    which earlier versions did not.
    """

    name: str
    host: str
    path: str
    looked: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    exits: bool = False


class OutputLines:
    """Numbered lines of one log; once they have been read, `starts` maps ranks to their programs."""

    def __init__(self, path: Path, noise: tuple[bytes, ...] = ()) -> None:
        self._path = path
        self._noise = noise
        self.starts: dict[int, StartedProgram] = {}

    def lines(self) -> Iterator[tuple[str, int]]:
        """Yield text and number of each line that is no record.

        A line that is too long comes in pieces. If a line was overwritten, its last version counts. Raise OSError if
        the log cannot be read.
        """
        frames, number, noise = FrameReader(), 1, any_of(self._noise)
        with self._path.open("rb") as log:
            while raw := log.readline(LONGEST_LINE):
                ours = MARK in raw
                if ours or not noise.search(raw):
                    for payload in frames.feed(raw.rstrip(b"\r\n")):
                        self._take(payload)
                    if not ours:
                        yield _shown(raw), number
                number += raw.endswith(b"\n")

    def _take(self, payload: bytes) -> None:
        try:
            record = json.loads(payload)
        except (ValueError, RecursionError):
            return
        if isinstance(record, dict) and record.get("t") == "program" and len(self.starts) < MOST_RECORDS:
            rank = record.get("rank")
            if type(rank) is int:
                self.starts.setdefault(rank, _start(record))


def _shown(raw: bytes) -> str:
    """Return a line as a terminal shows it, without colours and NULs."""
    last = without_colours(raw).rstrip(b"\r\n").rpartition(b"\r")[2]
    return last.decode(errors="replace").replace("\0", "")


def _start(record: dict[str, Any]) -> StartedProgram:
    looked, versions = record.get("looked"), record.get("versions")
    return StartedProgram(
        name=_text(record.get("name")),
        host=_text(record.get("host")),
        path=_text(record.get("path")),
        looked=tuple(map(_text, looked)) if isinstance(looked, list) else (),
        versions={_text(k): _text(v) for k, v in versions.items()} if isinstance(versions, dict) else {},
        exits=record.get("exits") is True,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) and value.isprintable() else ""
