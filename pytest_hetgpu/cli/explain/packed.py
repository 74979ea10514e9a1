"""Packed files and archives: gzip, bzip2, xz, zstd, zip, tar. Each is unpacked as a stream, within limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from pytest_hetgpu.errors import UsageError

HEAD = 4096
MOST_LOGS = 10_000
"""Most logs that are read of one archive or folder."""
MOST_LAYERS = 4
_CHUNK = 1 << 20
_MOST_BYTES = 64 << 30
_FREE_BYTES = 1 << 30
_MOST_RATIO = 200
_TAR_MAGIC = 257

_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
)


def packed_as(head: bytes) -> str | None:
    """Return the format of a packed file by its first HEAD bytes; None for all other files."""
    if head[_TAR_MAGIC : _TAR_MAGIC + 5] == b"ustar":
        return "tar"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic) and not head.isascii()), None)


def is_archive(kind: str) -> bool:
    """Return whether files of this format hold members with names."""
    return kind in ("zip", "tar")


@dataclass(slots=True)
class UnpackingLimit:
    """Limits for all that is unpacked of the file `name`, against files that are made to fill a disk.

    The first gigabyte is free. More may be at most 200 times the packed size of `packed` bytes.
    """

    name: str
    packed: int
    _unpacked: int = field(default=0, init=False)

    def take(self, size: int) -> None:
        """Count `size` unpacked bytes. Raise UsageError beyond a limit."""
        self._unpacked += size
        most = min(_MOST_BYTES, max(_FREE_BYTES, self.packed * _MOST_RATIO))
        if self._unpacked > most:
            raise UsageError(
                f"{self.name}: unpacks to more than {most >> 20:,} MiB, from {max(1, self.packed >> 20):,} MiB; "
                "if its content is right, unpack it first"
            )


def unpack(kind: str, path: Path, target: IO[bytes], limit: UnpackingLimit) -> bool:
    """Write the content of a packed file to `target`; return whether it is complete.

    If the file is cut off or damaged, the part before is written. Raise UsageError beyond a limit, and if zstd
    cannot be read here.
    """
    size = 0
    try:
        with _opened(kind, path, limit.name) as content:
            while chunk := content.read(_CHUNK):
                limit.take(len(chunk))
                size += target.write(chunk)
    except (EOFError, OSError, zlib.error, _lzma_error()) as error:
        if getattr(error, "errno", None) is not None:
            raise
        if not size:
            raise UsageError(f"{limit.name}: is packed ({kind}), but damaged: {error or 'it ends too early'}") from None
        return False
    finally:
        target.flush()
    return True


def _lzma_error() -> type[Exception]:
    import lzma

    return lzma.LZMAError


def _opened(kind: str, path: Path, name: str) -> AbstractContextManager[IO[bytes]]:
    import bz2
    import gzip
    import lzma

    if kind == "zstd":
        return _zstd(path, name)
    readers: dict[str, type[Any]] = {"gzip": gzip.GzipFile, "bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}
    opened: AbstractContextManager[IO[bytes]] = readers[kind](path)
    return opened


@contextmanager
def _zstd(path: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a zstd file by the program `zstd` or by Python 3.14."""
    import shutil

    program = shutil.which("zstd") or shutil.which("zstdcat")
    if program:
        from pytest_hetgpu.extensions.runtimes.process.filter import output_of

        with path.open("rb") as packed, output_of((program, "-dcq"), packed) as content:
            yield content
        return
    try:
        from importlib import import_module

        module = import_module("compression.zstd")
    except ImportError:
        raise UsageError(
            f"{name}: is packed (zstd), which nothing here can read: install the program zstd, or use Python 3.14"
        ) from None
    with module.open(path) as content:
        yield content


Unpacked = tuple[str, "Path | UsageError"]
Wanted = Callable[[str, bytes], bool]
"""Whether a file is read, by its name and its first HEAD bytes."""


def unpack_members(kind: str, path: Path, limit: UnpackingLimit, wanted: Wanted) -> Iterator[Unpacked]:
    """Yield the name of each wanted member, by name, and a temporary file with its content, which is then removed.

    Names are shown and never used as paths. Links, devices and folders are left out. A damaged member gives an error.
    Raise UsageError for a damaged archive and beyond a limit.
    """
    from tempfile import NamedTemporaryFile

    with ExitStack() as stack:
        try:
            found = (_of_zip if kind == "zip" else _of_tar)(path, stack)
        except _damages() as error:
            raise UsageError(f"{limit.name}: is an archive ({kind}), but damaged: {error}") from None
        count = 0
        for name, opened in sorted(found, key=itemgetter(0)):
            with NamedTemporaryFile(prefix="hetgpu-") as copy:
                try:
                    if not _copy_member(name, opened, copy, limit, wanted):
                        continue
                except _damages() as error:
                    yield name, UsageError(f"{limit.name}:{name}: cannot be unpacked: {error}")
                    continue
                if (count := count + 1) > MOST_LOGS:
                    raise UsageError(f"{limit.name}: holds more than {MOST_LOGS:,} logs")
                yield name, Path(copy.name)


_Opener = Callable[[], IO[bytes]]


def _copy_member(name: str, opened: _Opener, copy: IO[bytes], limit: UnpackingLimit, wanted: Wanted) -> bool:
    """Copy a member if it is wanted; return whether it was."""
    with opened() as content:
        chunk = content.read(HEAD)
        if not wanted(name, chunk):
            return False
        while chunk:
            limit.take(len(chunk))
            copy.write(chunk)
            chunk = content.read(_CHUNK)
    copy.flush()
    return True


def _of_zip(path: Path, stack: ExitStack) -> list[tuple[str, _Opener]]:
    from zipfile import ZipFile

    archive = stack.enter_context(ZipFile(path))
    return [(one.filename, partial(archive.open, one)) for one in archive.infolist() if not one.is_dir()]


def _of_tar(path: Path, stack: ExitStack) -> list[tuple[str, _Opener]]:
    import tarfile

    def opened(member: tarfile.TarInfo) -> IO[bytes]:
        content = tar.extractfile(member)
        assert content is not None, "a regular file"
        return content

    tar = stack.enter_context(tarfile.open(path, "r:"))  # noqa: SIM115 - the stack closes it
    found: list[tuple[str, _Opener]] = []
    try:
        found.extend((one.name, partial(opened, one)) for one in tar if one.isreg())
    except tarfile.TarError:
        if not found:
            raise
    return found


def _damages() -> tuple[type[Exception], ...]:
    """Return the errors of damaged or encrypted archives."""
    import struct
    from lzma import LZMAError
    from tarfile import TarError
    from zipfile import BadZipFile

    return (BadZipFile, TarError, LZMAError, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError)
