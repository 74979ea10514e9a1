"""Opens logs of any origin as regular files in UTF-8, which can be read more than once."""

from __future__ import annotations

import codecs
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from pytest_hetgpu.errors import UsageError

STDIN = "-"
_CHUNK = 1 << 20
_SAMPLE = 4096
_FEWEST_CHARACTERS = 4

_PACKED = (
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"BZh", "bzip2", "bzcat"),
    (b"\xfd7zXZ\x00", "xz", "xzcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"PK\x03\x04", "zip", "unzip -p"),
)
# Longer marks first: that of UTF-32 begins like that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@contextmanager
def open_log(name: str) -> Iterator[Path]:
    """Open the log `name` as a regular file. A pipe or device is read once; UTF-16 and UTF-32 are decoded.

    Raises UsageError if there is no such log, and for packed data.
    """
    try:
        with _regular_file(name) as path, path.open("rb") as log:
            head = log.read(_SAMPLE)
            log.seek(0)
            _refuse_packed(name, head)
            encoding = detect_encoding(head)
            if encoding is None:
                yield path
                return
            with _temporary_file() as copy:
                _decode(log, encoding, copy)
                yield Path(copy.name)
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


@contextmanager
def _regular_file(name: str) -> Iterator[Path]:
    path = Path(name)
    if name == STDIN:
        with _copy_pipe(_standard_input()) as copy:
            yield copy
    elif path.is_dir():
        raise UsageError(f"{name}: is a directory; name the log in it (of a run of ours scenarios/ID/output.log)")
    elif stat.S_ISREG(path.stat().st_mode):
        yield path
    else:
        with path.open("rb") as pipe, _copy_pipe(pipe) as copy:
            yield copy


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:
        raise UsageError("standard input is closed: name a log")
    if sys.stdin.isatty():
        sys.stderr.write("reading standard input (end with Ctrl-D)\n")
    return sys.stdin.buffer


@contextmanager
def _copy_pipe(pipe: IO[bytes]) -> Iterator[Path]:
    with _temporary_file() as copy:
        shutil.copyfileobj(pipe, copy)
        copy.flush()
        yield Path(copy.name)


def _temporary_file() -> AbstractContextManager[IO[bytes]]:
    import tempfile

    return tempfile.NamedTemporaryFile(prefix="hetgpu-")


def _refuse_packed(name: str, head: bytes) -> None:
    for magic, kind, tool in _PACKED:
        if head.startswith(magic) and not head.isascii():
            log = "LOG" if name == STDIN else shlex.quote(name)
            raise UsageError(f"{name}: is packed ({kind}); unpack it: {tool} {log} | hetgpu explain")


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


def _decode(log: IO[bytes], encoding: str, copy: IO[bytes]) -> None:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    first = True
    while chunk := log.read(_CHUNK):
        text = decoder.decode(chunk)
        copy.write(text.removeprefix("\ufeff").encode() if first else text.encode())
        first = False
    copy.write(decoder.decode(b"", final=True).encode())
    copy.flush()
