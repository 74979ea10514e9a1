"""A limit on the output of a cell on disk: of longer output, the beginning and the end are kept."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LIMIT = 256 << 20
"""Bytes of a cell's output that are kept."""

LEAST = 1 << 16
_EVERY = 0.2  # seconds between two looks at the file
_IDLE = 25  # looks at nothing after which the thread ends
_BLOCK = 1 << 20
_KEEP_SIZE, _PUNCH_HOLE = 0x1, 0x2  # linux/falloc.h


@contextmanager
def limited(output: Path, limit: float, search: Callable[[bytes], object] = bytes) -> Iterator[Callable[[], int]]:
    """Free the disk space between the first and the last `limit / 2` bytes of the file `output`, while inside.

    A writer continues undisturbed at the end of the file. `search` gets all bytes in order before they are left out.
    Yield a function to call after the last write. It replaces the hole by a line about it, and returns the number of
    bytes left out. A file system without holes keeps everything until then.
    """
    half = int(limit) // 2 if limit != float("inf") else 0
    if not half:
        yield lambda: 0
        return
    growing = _Growing(output, half, -(-half // _BLOCK) * _BLOCK, search, max(0, half - LEAST))
    _watch.add(growing)

    def finish() -> int:
        _watch.remove(growing)
        return _closed_up(growing)

    try:
        yield finish
    finally:
        _watch.remove(growing)


@dataclass(eq=False, slots=True)
class _Growing:
    """The output of a running cell.

    The hole in its middle ends at `done`. Its bytes up to `searched` were searched, from a little before the hole on.
    """

    output: Path
    half: int
    done: int
    search: Callable[[bytes], object]
    searched: int

    def look(self) -> bool:
        """Punch out the middle of the file, in whole blocks, if enough has come; False if that cannot be done."""
        try:
            end = (self.output.stat().st_size - self.half) // _BLOCK * _BLOCK
        except OSError:
            return True
        if end > self.done:
            self.search_to(end)
            if not _punch(self.output, self.done, end - self.done):
                return False
            self.done = end
        return True

    def search_to(self, end: int) -> None:
        """Search the bytes before `end` that are not searched yet."""
        with self.output.open("rb", buffering=0) as file:
            while self.searched < end and (
                block := os.pread(file.fileno(), min(_BLOCK, end - self.searched), self.searched)
            ):
                self.search(block)
                self.searched += len(block)


class _Watch:
    """One thread for all outputs that grow: to start one per cell costs more than most cells print."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._growing: list[_Growing] = []
        self._thread: threading.Thread | None = None

    def add(self, growing: _Growing) -> None:
        """Look at an output from now on."""
        with self._lock:
            self._growing.append(growing)
            # A thread that this process was forked without is not alive.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look, daemon=True, name="output-limit")
                self._thread.start()

    def remove(self, growing: _Growing) -> None:
        """Stop looking at an output: once this returns, its file is not changed any more."""
        with self._lock, suppress(ValueError):
            self._growing.remove(growing)

    def _look(self) -> None:
        idle = 0
        while True:
            time.sleep(_EVERY)
            with self._lock:
                self._growing = [growing for growing in self._growing if growing.look()]
                idle = 0 if self._growing else idle + 1
                if idle >= _IDLE:
                    self._thread = None
                    return


_watch = _Watch()


def _punch(output: Path, start: int, size: int) -> bool:
    """Free blocks of a file, which keeps its size. Return False if that is not possible."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    file = os.open(output, os.O_WRONLY | os.O_CLOEXEC)
    try:
        return bool(libc.fallocate(file, _PUNCH_HOLE | _KEEP_SIZE, start, size) == 0)
    except AttributeError:  # not Linux
        return False
    finally:
        os.close(file)


def _closed_up(growing: _Growing) -> int:
    """Join the beginning and the end of a long file, both cut between lines. Return the number of bytes left out."""
    output, half = growing.output, growing.half
    try:
        size = output.stat().st_size
    except OSError:
        return 0
    if size <= 2 * half:
        return 0
    with output.open("r+b") as file:
        head = _line_end_before(file.fileno(), half)
        start = _line_end_after(file.fileno(), size - half)
        left_out = start - head
        note = b"hetgpu: %d bytes of output are left out here, of %d\n" % (left_out, size)
        if len(note) >= left_out:
            return 0
        growing.search_to(start)
        to = head + os.pwrite(file.fileno(), note, head)
        while block := os.pread(file.fileno(), _BLOCK, start):
            start += len(block)
            to += os.pwrite(file.fileno(), block, to)
        file.truncate(to)
    return left_out


def _line_end_before(file: int, place: int) -> int:
    """Return the position after the last line end in the 64 KiB before `place`, or `place` itself."""
    start = max(0, place - LEAST)
    found = os.pread(file, place - start, start).rfind(b"\n")
    return place if found < 0 else start + found + 1


def _line_end_after(file: int, place: int) -> int:
    found = os.pread(file, LEAST, place).find(b"\n")
    return place if found < 0 else place + found + 1
