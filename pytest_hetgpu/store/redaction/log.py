"""Redacts a log of any size in one pass. Only lines that may hold a secret cost more than a search.

The output of a job is written to a private folder (`RunFolder.raw`). After the job has ended, `publish` writes the
redacted text to the cell's folder for reports, recipes and judges. The raw log stays private if the two differ.
Otherwise only one file remains.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pytest_hetgpu.store.files import PRIVATE
from pytest_hetgpu.store.redaction.redact import LONGEST_KEY, end_of_known, redact_bytes, trigger_pattern

BLOCK = 1 << 20
_CUT_CONTEXT = 2 * LONGEST_KEY  # bytes on both sides of a cut that are redacted together as a check
_MOST_TRIES = 12  # per mark; each try goes back twice as far as the one before
_STEP = 64
_LOOKAHEAD = 128  # bytes after a line; a known value that begins there is recognised
_CONTEXT_LINES = 2  # a secret may begin so many lines before its trigger, and end so many after it


class LogRedactor:
    """A redactor of a byte stream. The result does not depend on how the stream is cut into chunks.

    It needs some MiB of memory, whatever the size. A secret longer than 16 KiB may stay in part.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Take the next bytes; yield complete pieces, each as it was and redacted."""
        self._rest += data
        while len(self._rest) >= BLOCK + _CUT_CONTEXT:
            end = _cut_position(self._rest)
            piece = bytes(memoryview(self._rest)[:end])
            del self._rest[:end]
            yield piece, redact_piece(piece)

    def finish(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rest at the end of the stream."""
        piece, self._rest = bytes(self._rest), bytearray()
        if piece:
            yield piece, redact_piece(piece)


def redact_piece(piece: bytes) -> bytes:
    """Redact a piece of a log. Only lines near a trigger are decoded."""
    kept: list[bytes] = []
    at = 0
    for start, end in _suspect_ranges(piece):
        kept += piece[at:start], redact_bytes(piece[start:end])
        at = end
    return b"".join((*kept, piece[at:])) if kept else piece


def _suspect_ranges(piece: bytes) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lines that may hold a secret. A range includes the lines beside a trigger."""
    find = trigger_pattern().search
    start = end = -1
    found = find(piece)
    while found:
        first, last = _start_of_context(piece, found.start()), _end_of_context(piece, found.end())
        if piece.find(b"PRIVATE KEY", found.start(), _line_end(piece, found.end())) >= 0:
            first = _start_of_context(piece, max(0, first - LONGEST_KEY))
            last = _end_of_context(piece, min(len(piece), last + LONGEST_KEY))
        if beyond := end_of_known(piece[found.start() : last + _LOOKAHEAD]):
            last = max(last, _end_of_context(piece, min(len(piece), found.start() + beyond)))
        if first > end:
            if end >= 0:
                yield start, end
            start = first
        end = max(end, last)
        found = find(piece, _line_end(piece, found.end()))
    if end >= 0:
        yield start, end


def _start_of_context(piece: bytes, place: int) -> int:
    for _ in range(_CONTEXT_LINES + 1):
        place = piece.rfind(b"\n", 0, place)
        if place < 0:
            return 0
    return place + 1


def _end_of_context(piece: bytes, place: int) -> int:
    for _ in range(_CONTEXT_LINES + 1):
        place = _line_end(piece, place)
    return place


def _line_end(piece: bytes, place: int) -> int:
    found = piece.find(b"\n", place)
    return len(piece) if found < 0 else found + 1


def _cut_position(data: bytearray) -> int:
    """Return the end of the first piece: the last safe cut up to BLOCK, preferably at a line end."""
    for mark in (b"\n", b" "):
        place, step = BLOCK, _STEP
        for _ in range(_MOST_TRIES):
            place = data.rfind(mark, BLOCK // 2, place)
            if place < 0:
                break
            if _is_safe_cut(data, place + 1):
                return place + 1
            place, step = place - step, 2 * step
    # A line of a megabyte without a usable blank.
    tries = range(BLOCK, BLOCK // 2, -BLOCK // 8)
    return next((place for place in tries if _is_safe_cut(data, place)), BLOCK)


def _is_safe_cut(data: bytearray, place: int) -> bool:
    before, after = bytes(data[max(0, place - _CUT_CONTEXT) : place]), bytes(data[place : place + _CUT_CONTEXT])
    if not trigger_pattern().search(before + after):
        return True
    return redact_bytes(before + after) == redact_bytes(before) + redact_bytes(after)


def contains_secrets(log: Path) -> bool:
    """Return whether redaction would change a log. Raises OSError."""
    with log.open("rb", buffering=0) as source:
        return any(piece != text for piece, text in _pieces(source.fileno()))


def publish(raw: Path, log: Path, *, ended: bool = True) -> bool:
    """Write the redacted text of `raw` to `log`, in full or not at all; return whether it differs.

    If it differs, `raw` stays; otherwise only `log` remains. A process may still write to `raw` unless its job has
    `ended`; then `log` is a file of its own. Raises OSError; FileNotFoundError if there is no `raw`.
    """
    temporary = log.with_name(f".{log.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        with raw.open("rb", buffering=0) as source:
            found = _write(source.fileno(), temporary, always=not ended)
        if not found and ended:
            raw.replace(log)
            return False
        temporary.replace(log)
        if not found:
            raw.unlink(missing_ok=True)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return found


def _write(source: int, path: Path, *, always: bool) -> bool:
    """Write the redacted text of a file if it differs, or `always`; return whether it differs."""
    out = _create(path) if always else -1
    differs, place = False, 0
    try:
        for piece, text in _pieces(source):
            if text != piece and not differs:
                differs = True
                if out < 0:
                    out = _create(path)
                    _copy(source, out, place)
            if out >= 0:
                _write_all(out, text)
            place += len(piece)
    finally:
        if out >= 0:
            os.close(out)
    return differs


def _pieces(source: int) -> Iterator[tuple[bytes, bytes]]:
    redactor = LogRedactor()
    place = 0
    while chunk := os.pread(source, BLOCK, place):
        place += len(chunk)
        yield from redactor.feed(chunk)
    yield from redactor.finish()


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)


def _copy(source: int, out: int, size: int) -> None:
    place = 0
    while place < size:
        data = os.pread(source, min(BLOCK, size - place), place)
        _write_all(out, data)
        place += len(data)


def _write_all(out: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(out, left) :]
