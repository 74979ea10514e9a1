"""Errors of the disk, apart from errors of the program."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_hetgpu.errors import StorageError

JUDGE = "storage"
"""The judge of the finding that a cell could not be recorded: such a cell is run again."""
_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the disk (full, read-only, missing) into a StorageError that names the file, or `folder`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_ERRNOS:
            raise
        raise StorageError(f"{error.filename or folder}: cannot be written ({error.strerror})") from error
