"""Lines that programs themselves print, for parsers of all of them: per rank, bounded, and without our own records.

A launcher that labels output puts the rank before each line. It forwards the output of a rank in chunks. So a label may
be inside a line, and the rest of a line may follow lines of other ranks:

    [1,2]<stdout>:first half[1,0]<stdout>:a line of rank 0
    [1,2]<stdout>: second half
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_hetgpu.analysis.logs.colours import without_colours
from pytest_hetgpu.analysis.logs.frames import MARK, FrameReader
from pytest_hetgpu.analysis.logs.scan import LONGEST_LINE
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.multi_pattern import any_of
from pytest_hetgpu.model.program_output import OutputLine

MOST_RECORDS = 10_000
LONGEST_SEARCHED = 16 << 20
"""Bytes of the longest line that a parser gets as a whole."""

_LABELS = {
    "open-mpi-4": re.compile(rb"\[(?:[\w.-]{1,80}@)?\d{1,10},(\d{1,7})\]<(stdout|stderr)>:"),
    "open-mpi-5": re.compile(rb"\[(?:[\w.-]{1,80}@)?\d{1,10},(\d{1,7})\]<(stdout|stderr)>: "),
    "srun": re.compile(rb"^ {0,6}(\d{1,7})(): "),
    "torchrun": re.compile(rb"^\[default(\d{1,7})()\]:"),
}
# A terminal shows nothing for them: controls but tabs and line ends, and marks of direction.
_UNSEEN = lazy("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# `srun --label` ends each of its messages with a line feed. A longer line comes in messages of exactly this size
# (SLURM_IO_MAX_MSG_LEN of Slurm).
_SRUN_MESSAGE = 1024


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


class RankLines:
    """Joins the lines of ranks in a launcher's output. `labels` names the form of their labels, "" for none.

    `divided` is the number of the first line that was longer than `longest` bytes and came in pieces, 0 without one.
    """

    def __init__(self, labels: str = "", longest: int = LONGEST_SEARCHED) -> None:
        self._label = _LABELS.get(labels)
        self._message = _SRUN_MESSAGE if labels == "srun" else 0
        self._longest = longest
        self._held: dict[bytes, tuple[int | None, bytes]] = {}
        self._number = 1
        self.divided = 0

    def feed(self, raw: bytes) -> Iterator[tuple[int | None, bytes, int]]:
        """Take a raw line, or a piece of one; yield rank, bytes and number of each line that it ends."""
        for label, rank, piece in self._pieces(raw):
            if self._message and rank is not None and len(piece) == self._message + 1:
                piece = piece.rstrip(b"\n")  # noqa: PLW2901 - the line goes on
            held = self._held.pop(label, None)
            whole = held[1] + piece if held else piece
            if whole.endswith(b"\n"):
                yield rank, whole, self._number
            elif len(whole) >= self._longest:
                self.divided = self.divided or self._number
                yield rank, whole, self._number
            elif whole:
                self._held[label] = (rank, whole)
        self._number += raw.endswith(b"\n")

    def finish(self) -> Iterator[tuple[int | None, bytes, int]]:
        """Yield the last lines, which have no end."""
        for rank, whole in self._held.values():
            yield rank, whole, self._number

    def _pieces(self, raw: bytes) -> Iterator[tuple[bytes, int | None, bytes]]:
        """Yield the parts of a raw line, each with its stream: the label, b"" for the launcher's own."""
        label, rank, start = b"", None, 0
        for found in self._label.finditer(raw) if self._label else ():
            if found.start() > start or label:
                yield label, rank, raw[start : found.start()]
            label, rank, start = found[1] + found[2], int(found[1]), found.end()
        yield label, rank, raw[start:]


class OutputLines:
    """Lines of one log. Once they have been read, `starts` maps ranks to their programs."""

    def __init__(
        self, path: Path, noise: tuple[bytes, ...] = (), labels: str = "", longest: int = LONGEST_LINE
    ) -> None:
        self._path = path
        self._noise = any_of(noise)
        self._longest = longest
        self._ranks = RankLines(labels, longest)
        self._frames = FrameReader()
        self.starts: dict[int, StartedProgram] = {}

    @property
    def divided(self) -> int:
        """The number of the first line that was too long to be read as a whole, 0 without one."""
        return self._ranks.divided

    def lines(self) -> Iterator[OutputLine]:
        """Yield each line that is no record, in the order in which they ended.

        Raise OSError if the log cannot be read.
        """
        with self._path.open("rb") as log:
            while raw := log.readline(self._longest):
                for rank, whole, number in self._ranks.feed(raw):
                    yield from self._read(rank, whole, number)
        for rank, whole, number in self._ranks.finish():
            yield from self._read(rank, whole, number)

    def _read(self, rank: int | None, raw: bytes, number: int) -> Iterator[OutputLine]:
        noisy = self._noise.search(raw)
        ours = MARK in raw
        if ours or not noisy:
            for payload in self._frames.feed(raw.rstrip(b"\r\n")):
                self._take(payload)
        if not ours:
            text, hidden = shown(raw)
            yield OutputLine(None, number, rank, hidden + text) if noisy else OutputLine(text, number, rank, hidden)

    def _take(self, payload: bytes) -> None:
        try:
            record = json.loads(payload)
        except (ValueError, RecursionError):
            return
        if isinstance(record, dict) and record.get("t") == "program" and len(self.starts) < MOST_RECORDS:
            rank = record.get("rank")
            if type(rank) is int:
                self.starts.setdefault(rank, _start(record))


def without_labels(text: str, labels: str) -> str:
    """Return a line of labelled output without the labels in it."""
    return _LABELS[labels].sub(b"", text.encode(errors="replace")).decode(errors="replace")


def shown(raw: bytes) -> tuple[str, str]:
    """Return a line as a terminal shows it, without colours and controls, and the text before its last overwriting."""
    before, _, last = without_colours(raw).rstrip(b"\r\n").rpartition(b"\r")
    text, hidden = (part.decode(errors="replace") for part in (last, before))
    if not text.isprintable():
        text = _UNSEEN.sub("", text)
    if hidden:
        hidden = _UNSEEN.sub("", hidden)
    return text, f"{hidden}\r" if hidden else ""


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
