"""Frames with payloads in a launcher's output, also those that it has cut.

A frame is one line, `@hetgpu:LLLL:CCCCCCCC:PAYLOAD`, written in one piece by one rank (`remote/records.py`). LLLL is
the payload's length in bytes, CCCCCCCC its CRC-32. A launcher forwards each rank's output in chunks, so it can cut a
frame at any byte. Output of other ranks comes in between, and the rest ends a later line:

    @hetgpu:0021:09862b74:{"t":"doUCX DEBUG ...        <- head, then foreign text
    ... foreign lines ...
    UCX DEBUG ...ne","rank":0}                         <- foreign text, then tail

The border between head or tail and foreign text is invisible. But only one way to make LLLL bytes of the two has the
CRC. A frame cut once is found wherever the cut is; one cut twice is lost, and counted. Open MPI 5.0 keeps lines whole.
Open MPI 4.1 reads from terminals. Under a flood of output it cuts a third of all frames of 2 kB once. It cuts one in
some thousands twice.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass

from pytest_hetgpu.model.lazy_regex import lazy

MARK = b"@hetgpu:"
LONGEST_PAYLOAD = 4000
HEADER_LENGTH = len(b"@hetgpu:LLLL:CCCCCCCC:")
CRC_LENGTH = len(b"CCCCCCCC:")
PAYLOAD_START = b'{"t":"'

WINDOW = 1 << 20  # bytes: a launcher of 128 ranks may forward two chunks of 4 KiB of each before it returns to one
MOST_HEADS = 256
WORK_LIMIT = 2_000_000_000  # in about 1 ns, over a reader's life: a hostile log costs seconds, not hours
WORK_PER_TRY = 500

_HEADER = lazy(rb"@hetgpu:(\d{4}):([0-9a-f]{8}):")
_INSERTED = lazy(rb"\x1b\[[0-?]*[ -/]*[@-~]|\[[^\s\[\],]{1,80},\d+\]<std(?:out|err)>: ?")
_CONTROLS = bytes(range(32))


@dataclass(slots=True)
class _Head:
    """A frame whose end is missing; dropped once `until` bytes have been seen.

    If the header itself was cut, `header` ends in foreign text, and `length` is 0 unless it looks whole by chance. Such
    a head may match several frames: after its first match it is `used`, and kept.
    """

    header: bytes
    length: int
    crc: int
    text: bytes
    until: int
    used: bool = False


class FrameReader:
    """Reader of the payloads in a stream of lines; `corrupt` counts the frames lost so far."""

    def __init__(self) -> None:
        self.corrupt = 0
        self._heads: deque[_Head] = deque()
        self._seen = 0
        self._work = WORK_LIMIT

    def feed(self, line: bytes) -> list[bytes]:
        """Return the payloads that a line, without its newline, holds or completes."""
        self._seen += len(line) + 1
        if MARK not in line and (b"}" not in line or not (self._heads or PAYLOAD_START in line)):
            return []
        self._expire(self._seen)
        line = _INSERTED.sub(b"", line).translate(None, _CONTROLS)
        payloads, rest = self._whole(line)
        return payloads + self._completed(rest) if rest.endswith(b"}") else payloads

    def finish(self) -> int:
        """Drop incomplete frames and return the number of frames lost in total."""
        self._expire(self._seen + WINDOW + 1)
        return self.corrupt

    def _whole(self, line: bytes) -> tuple[list[bytes], bytes]:
        """Return payloads that are whole in the line, and the text after the last; store the heads of others."""
        payloads, end = [], 0
        start = line.find(MARK)
        while start >= 0:
            head = self._head(line[start : start + HEADER_LENGTH + LONGEST_PAYLOAD])
            if head.length and len(head.text) == head.length and zlib.crc32(head.text) == head.crc:
                payloads.append(head.text)
                end = start + HEADER_LENGTH + head.length
            else:
                self._note(head)
            start = line.find(MARK, start + len(MARK))
        return payloads, line[end:]

    def _head(self, text: bytes) -> _Head:
        found = _HEADER.match(text)
        length, crc = (int(found[1]), int(found[2], 16)) if found else (0, 0)
        payload = text[HEADER_LENGTH : HEADER_LENGTH + length]
        return _Head(text[:HEADER_LENGTH], length, crc, payload, self._seen + WINDOW)

    def _note(self, head: _Head) -> None:
        self._heads.append(head)
        if len(self._heads) > MOST_HEADS:
            self._give_up()

    def _expire(self, now: int) -> None:
        while self._heads and (self._heads[0].until < now or self._work <= 0):
            self._give_up()

    def _give_up(self) -> None:
        if not self._heads.popleft().used:
            self.corrupt += 1

    def _completed(self, tail: bytes) -> list[bytes]:
        """Return all payloads that `tail`, the end of a line, completes: frames of several ranks often end alike."""
        payloads = [self._beheaded(tail)]
        for head in tuple(self._heads):
            payload = self._joined(head, tail) if head.length and self._work > 0 else None
            if payload is not None:
                self._heads.remove(head)
                payloads.append(payload)
        return list(dict.fromkeys(payload for payload in payloads if payload is not None))

    def _joined(self, head: _Head, tail: bytes) -> bytes | None:
        """Join head and tail so that the CRC matches: `kept` bytes of the head, the missing ones of the tail."""
        first = max(0, head.length - len(tail))
        last = min(head.length - 1, len(head.text))
        crc = zlib.crc32(head.text[:first])
        for kept in range(first, last + 1):
            missing = tail[len(tail) - head.length + kept :]
            self._work -= WORK_PER_TRY + len(missing)
            if zlib.crc32(missing, crc) == head.crc:
                return head.text[:kept] + missing
            crc = zlib.crc32(head.text[kept : kept + 1], crc)
        return None

    def _beheaded(self, tail: bytes) -> bytes | None:
        """Return a payload whose header was cut: its length and CRC follow from it, and its first part must be a head.

        With the full CRC before the payload the first part proves nothing more, and may be missing.
        """
        start = tail.rfind(PAYLOAD_START)
        payload = tail[start:]
        if start < 0 or len(payload) > LONGEST_PAYLOAD:
            return None
        header = b"@hetgpu:%04d:%08x:" % (len(payload), zlib.crc32(payload))
        second = _common(header[::-1], tail[:start][::-1][:HEADER_LENGTH])
        self._work -= WORK_PER_TRY * len(self._heads)
        fitting = [head for head in self._heads if _common(header, head.header) + second >= HEADER_LENGTH]
        for head in sorted(fitting, key=lambda head: head.used)[:1]:
            head.used = True
        return payload if fitting or second >= CRC_LENGTH else None


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common beginning."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length
