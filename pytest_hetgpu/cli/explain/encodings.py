"""Encodings with characters wider than a byte."""

from __future__ import annotations

import codecs
from typing import IO

_CHUNK = 1 << 20
_FEWEST_CHARACTERS = 4

# Longer marks first: that of UTF-32 begins like that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def detect_encoding(head: bytes) -> str | None:
    """Return the encoding of a log with characters wider than a byte, by its beginning; None for all others.

    Without a byte order mark, Latin letters show it: every other byte is zero.
    """
    marked = next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None)
    if marked:
        return marked
    characters = len(head) // 2
    first, second = head[0::2].count(0), head[1::2].count(0)
    most, few = characters * 0.6, characters * 0.02
    if characters < _FEWEST_CHARACTERS:
        return None
    return "utf-16-le" if second >= most and first <= few else "utf-16-be" if first >= most and second <= few else None


def decode(log: IO[bytes], encoding: str, copy: IO[bytes]) -> None:
    """Copy a log in an encoding as UTF-8; invalid characters are replaced."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    first = True
    while chunk := log.read(_CHUNK):
        text = decoder.decode(chunk)
        copy.write(text.removeprefix("\ufeff").encode() if first else text.encode())
        first = False
    copy.write(decoder.decode(b"", final=True).encode())
    copy.flush()
