"""Opens logs of any origin as regular files in UTF-8, which can be read more than once."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from pytest_hetgpu.analysis.logs.sample import may_be_envelope, sample_lines
from pytest_hetgpu.cli.explain.encodings import decode, detect_encoding
from pytest_hetgpu.cli.explain.packed import (
    HEAD,
    MOST_LAYERS,
    UnpackingLimit,
    is_archive,
    packed_as,
    unpack,
    unpack_members,
)
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.store.files import NotPlainFile, open_input
from pytest_hetgpu.store.text import printable

STDIN = "-"

Opened = tuple[str, "Path | UsageError"]
"""A log's name as it is shown, and its path or the reason why it cannot be read."""


def open_logs(name: str) -> Iterator[Opened]:
    """Yield each log in `name`: a file, a pipe, a packed file, an archive, or a folder with any of them.

    A path is valid until the next is asked for. Standard input and a pipe of the shell are read once. UTF-16 and UTF-32
    are decoded. Logs of a folder or archive are named FOLDER/FILE and ARCHIVE:MEMBER.
    """
    try:
        if name != STDIN and Path(name).is_dir():
            from pytest_hetgpu.cli.explain.folders import logs_in

            for path in logs_in(Path(name)):
                yield from open_logs(str(path))
            return
        with _regular_file(name) as path:
            yield from _layer(name, path, None, MOST_LAYERS)
    except UsageError as error:
        yield name, error
    except NotPlainFile as error:
        hint = "; `hetgpu explain - <PIPE` reads a pipe" if Path(name).is_fifo() else ""
        yield name, UsageError(f"{name}: cannot be read: {error.strerror}{hint}")
    except (OSError, ValueError) as error:
        yield name, UsageError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}")


def _layer(name: str, path: Path, limit: UnpackingLimit | None, layers: int) -> Iterator[Opened]:
    """Yield the logs in a regular file; at most `layers` of packing are removed."""
    with path.open("rb") as log:
        head = log.read(HEAD)
    kind = packed_as(head)
    if kind is None:
        yield from _plain(name, path, head)
        return
    if not layers:
        raise UsageError(f"{name}: is packed more than {MOST_LAYERS} times")
    limit = limit or UnpackingLimit(name, path.stat().st_size)
    if is_archive(kind):
        yield from _archive(name, path, kind, limit, layers)
        return
    with _temporary_file() as copy:
        if not unpack(kind, path, copy, limit):
            told = f"{name}: is packed ({kind}) and cut off or damaged; what comes before is read"
            sys.stderr.write(f"{printable(told)}\n")
        yield from _layer(name, Path(copy.name), limit, layers - 1)


def _archive(name: str, path: Path, kind: str, limit: UnpackingLimit, layers: int) -> Iterator[Opened]:
    from pytest_hetgpu.cli.explain.folders import is_log

    empty = True
    for member, unpacked in unpack_members(kind, path, limit, is_log):
        empty, shown = False, f"{name}:{member}"
        if isinstance(unpacked, UsageError):
            yield shown, unpacked
        else:
            yield from _layer(shown, unpacked, limit, layers - 1)
    if empty:
        raise UsageError(f"{name}: is an archive ({kind}) without a log")


def _plain(name: str, path: Path, head: bytes) -> Iterator[Opened]:
    encoding = detect_encoding(head)
    if encoding is None:
        yield from _unpacked(name, path)
        return
    with _temporary_file() as copy, path.open("rb") as log:
        decode(log, encoding, copy)
        yield from _unpacked(name, Path(copy.name))


def _unpacked(name: str, path: Path) -> Iterator[Opened]:
    """Yield a log without the envelopes of its lines, if it has any."""
    sample = sample_lines(path)
    if not may_be_envelope(sample):
        yield name, path
        return
    from pytest_hetgpu.analysis.logs.envelopes import find_envelope

    envelope = find_envelope(sample)
    if envelope is None:
        yield name, path
        return
    with _temporary_file() as copy, path.open("rb") as log:
        copy.writelines(envelope.unpack(log))
        copy.flush()
        yield name, Path(copy.name)


@contextmanager
def _regular_file(name: str) -> Iterator[Path]:
    path = Path(name)
    if name == STDIN:
        with _copy_pipe(_standard_input()) as copy:
            yield copy
        return
    with open_input(path) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield path
        else:
            with _copy_pipe(file) as copy:
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
        import shutil

        shutil.copyfileobj(pipe, copy)
        copy.flush()
        yield Path(copy.name)


def _temporary_file() -> AbstractContextManager[IO[bytes]]:
    import tempfile

    return tempfile.NamedTemporaryFile(prefix="hetgpu-")
