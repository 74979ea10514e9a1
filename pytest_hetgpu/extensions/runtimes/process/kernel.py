"""Facts that only the kernel has: this process's children, the end of a process, and the adoption of orphans."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
_THREADS = "/proc/self/task"
_WITHOUT_PIDFD = 0.01  # seconds between two checks
HEEDING = 1.0  # seconds that a wait may last after an unnoticed signal, which came just before it or to another thread


def children() -> frozenset[int]:
    """Return the pids of this process's children, including those that ended and were not reaped."""
    try:
        by_thread = [_read(f"{_THREADS}/{thread}/children") for thread in os.listdir(_THREADS)]  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/thread-self/children").exists():
            return children()  # a thread that ended meanwhile has left its children to another
    else:
        return frozenset(int(pid) for pid in b"".join(by_thread).split())
    import psutil

    return frozenset(child.pid for child in psutil.Process().children())


def _read(path: str) -> bytes:
    """Read a file with system calls alone: a cell reads some ten of these."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)


def still_running(pids: Iterable[int], seconds: float) -> set[int]:
    """Return those of `pids` that still run when all have ended or `seconds` have passed. Reap none of them."""
    try:
        return _poll(pids, seconds)
    except (AttributeError, OSError):
        # No pidfd: a kernel before 5.3, a Python built without it, a sandbox, or no file descriptors left.
        return _look_often(pids, seconds)


def _poll(pids: Iterable[int], seconds: float) -> set[int]:
    deadline = time.monotonic() + seconds
    poll, running = select.poll(), dict[int, int]()
    with ExitStack() as opened:
        for pid in pids:
            try:
                ending = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            opened.callback(os.close, ending)
            poll.register(ending, select.POLLIN)
            running[ending] = pid
        while running:
            left = max(0.0, deadline - time.monotonic())
            events = poll.poll(min(left, HEEDING) * 1000)
            for ending, _ in events:
                poll.unregister(ending)
                del running[ending]
            if not events and left <= HEEDING:
                break
    return set(running.values())


def _look_often(pids: Iterable[int], seconds: float) -> set[int]:
    deadline = time.monotonic() + seconds
    while running := {pid for pid in pids if not _ended(pid)}:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(left, _WITHOUT_PIDFD))
    return running


def _ended(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class Custody:
    """The subreaper role, in which this process adopts the orphans of its descendants instead of init, while jobs run.

    It is an attribute of the whole process. It is counted, because jobs may run in several threads. `launchers` are the
    pids of all running jobs' launchers; hold `lock` to read or change it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.launchers: set[int] = set()
        self.gathers_orphans = False
        self._holders = 0
        self._before = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the custody of orphaned processes while at least one holder is inside."""
        with self.lock:
            self._holders += 1
            if self._holders == 1:
                self._before = _subreaper()
                self.gathers_orphans = _become_subreaper(1)
        try:
            yield
        finally:
            with self.lock:
                self._holders -= 1
                if self._holders == 0 and self.gathers_orphans:
                    _become_subreaper(self._before)


custody = Custody()


def _become_subreaper(flag: int) -> bool:
    import ctypes

    return _prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(flag))


def _subreaper() -> int:
    import ctypes

    flag = ctypes.c_int(0)
    _prctl(_GET_CHILD_SUBREAPER, ctypes.byref(flag))
    return flag.value


@cache
def _libc() -> ctypes.CDLL:
    import ctypes  # a listing has no use for it

    return ctypes.CDLL(None)


def _prctl(option: int, argument: object) -> bool:
    try:
        return bool(_libc().prctl(option, argument, 0, 0, 0) == 0)
    except (OSError, AttributeError):  # not Linux
        return False
