"""Room on the disk that is kept back for last words: a full one can still be told what became of the cell in flight."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BYTES = 64 << 10


class ReservedSpace:
    """A file of that size beside a journal while it is written; without one where the disk does not give it."""

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
        """Note the place of the journal, which may be a new one."""
        self._path = journal.with_name(f".{journal.stem}.reserve")

    def release(self) -> None:
        """Gives the room back. Doing so twice is fine."""
        with suppress(OSError):
            self._path.unlink()
