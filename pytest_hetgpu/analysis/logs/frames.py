"""Finds framed payloads in a launcher's output, also those it has cut.

A frame is one line, `@hetgpu:LLLL:CCCCCCCC:PAYLOAD`, written in one piece by one rank (`remote/records.py`): LLLL is
the payload's length in bytes, CCCCCCCC its CRC-32. A launcher forwards what it reads from each rank in chunks, so a
frame can be cut at any byte; what others wrote comes in between, and the rest ends a later line:

    @hetgpu:0021:09862b74:{"t":"doUCX DEBUG ...        <- head, then foreign text
    ... foreign lines ...
    UCX DEBUG ...ne","rank":0}                         <- foreign text, then tail

How much of the first line is head and how much of the last is tail cannot be seen, but of all ways to make LLLL bytes
of the two only one has the CRC. A frame cut once is found wherever the cut is; one cut twice is lost, and counted.
Open MPI 5.0 keeps lines whole; 4.1 reads from terminals, and under a flood of output cuts a third of all frames of
2 kB once and one in some thousands twice.
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
    """A frame whose end is missing. Given up once `until` bytes have been seen.

    Where it is the header that was cut, `header` ends in foreign text; `length` is 0, unless chance made it look whole.
    Such a head may fit several frames: it is `used` by one, and kept for another.
    """

    header: bytes
    length: int
    crc: int
    text: bytes
    until: int
    used: bool = False


class FrameReader:
    """Gives the payloads in a stream of lines; `corrupt` counts the frames given up so far."""

    def __init__(self) -> None:
        self.corrupt = 0
        self._heads: deque[_Head] = deque()
        self._seen = 0
        self._work = WORK_LIMIT

    def feed(self, line: bytes) -> list[bytes]:
        """The payloads that this line holds or completes. It comes without its newline."""
        self._seen += len(line) + 1
        if MARK not in line and (b"}" not in line or not (self._heads or PAYLOAD_START in line)):
            return []
        self._expire(self._seen)
        line = _INSERTED.sub(b"", line).translate(None, _CONTROLS)
        payloads, rest = self._whole(line)
        return payloads + self._completed(rest) if rest.endswith(b"}") else payloads

    def finish(self) -> int:
        """Gives up what is still incomplete. Returns the number of frames that were lost in all."""
        self._expire(self._seen + WINDOW + 1)
        return self.corrupt

    def _whole(self, line: bytes) -> tuple[list[bytes], bytes]:
        """Payloads that lie in the line in one piece, and what follows the last of them; notes the heads of others."""
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
        """All payloads that `tail`, the end of a line, completes: frames of several ranks often end alike."""
        payloads = [self._beheaded(tail)]
        for head in tuple(self._heads):
            payload = self._joined(head, tail) if head.length and self._work > 0 else None
            if payload is not None:
                self._heads.remove(head)
                payloads.append(payload)
        return list(dict.fromkeys(payload for payload in payloads if payload is not None))

    def _joined(self, head: _Head, tail: bytes) -> bytes | None:
        """Head and tail put together where the CRC says so: `kept` bytes of the one, the missing ones of the other."""
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
        """A payload whose header was cut: the payload tells what it was, and its first part must be among the heads.

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
    """How many bytes the two begin with alike."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length
