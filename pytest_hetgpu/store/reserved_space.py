"""Disk space that is reserved for the last events. With it, a journal can record the cell in flight on a full disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BYTES = 64 << 10


class ReservedSpace:
    """A reserve file beside an open journal; there is none if the disk is full already."""

    def __init__(self, journal: Path) -> None:
        self.moved_to(journal)
        if not hasattr(os, "posix_fallocate"):
            return
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, _BYTES)
            finally:
                os.close(file)

    def moved_to(self, journal: Path) -> None:
        """Note the new place of the journal."""
        self._path = journal.with_name(f".{journal.stem}.reserve")

    def release(self) -> None:
        """Release the space. Doing so twice is fine."""
        with suppress(OSError):
            self._path.unlink()
