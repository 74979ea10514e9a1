"""Who holds a host: one job a host at a time, across the processes and sessions of one user on this machine.

A lease is an exclusive flock(2) on a file of the host's: the kernel frees it when its holder dies, however it dies, and
wakes the next one at once (the filelock library looks again every 50 ms). The files stay: removing one while it is in
use would give the host two holders.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pytest_hetgpu.errors import NotHere, UsageError

FOLDER_VARIABLE = "HETGPU_LEASES"

_ADVICE = f"remove it, or set {FOLDER_VARIABLE} to a folder that only you can write to"


@contextmanager
def hold(hosts: Iterable[str], *, timeout: float | None = None) -> Iterator[tuple[str, ...]]:
    """Hold every one of `hosts`, and yield them in the order taken: sorted, so that no two jobs wait for each other.

    Waits at most `timeout` seconds for all of them together (None: as long as it takes), then raises NotHere, which
    names the holder. Leases live in $HETGPU_LEASES, else in `hetgpu-UID/leases` below the folder for temporary files;
    raises UsageError if others could tamper with that folder. Not to be nested: whoever holds a host and asks for it
    again waits for itself.
    """
    wanted = tuple(sorted(set(hosts)))
    deadline = None if timeout is None else time.monotonic() + timeout
    folder = _folder()
    with ExitStack() as leases:
        for host in wanted:
            leases.enter_context(_lease(host, folder / _file_name(host), deadline))
        yield wanted


@contextmanager
def _lease(host: str, path: Path, deadline: float | None) -> Iterator[None]:
    started = time.monotonic()
    claim = _Claim(path)
    try:
        if not claim.granted(None if deadline is None else deadline - started):
            waited = time.monotonic() - started
            raise NotHere(f"host {host!r} is busy: {_holder(path)} holds it (waited {waited:.1f} s for {path})")
        yield
    finally:
        claim.release()


class _Claim:
    """A wait for one lock file, then the lock. A thread does the waiting, for flock(2) knows no timeout."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(f"{path} cannot be used as a lock file: {error.strerror}") from error
        self._deciding = threading.Lock()
        self._granted = threading.Event()
        self._waiter: threading.Thread | None = None
        self._given_up = False

    def granted(self, seconds: float | None) -> bool:
        """Wait until the lock is ours (True) or `seconds` have passed (False)."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._granted.set()
        except BlockingIOError:
            if seconds is None or seconds > 0:
                self._waiter = threading.Thread(target=self._wait, name=f"lease-{self._file}", daemon=True)
                self._waiter.start()
                self._granted.wait(seconds)
        if self._granted.is_set():
            os.pwrite(self._file, b"%d\n" % os.getpid(), 0)
        return self._granted.is_set()

    def release(self) -> None:
        """Free the lock, or give up waiting for it."""
        with self._deciding:
            self._given_up = True
            still_waiting = self._waiter is not None and not self._granted.is_set()
        if still_waiting:
            return
        if self._granted.is_set():
            os.ftruncate(self._file, 0)
        self._free()

    def _wait(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._deciding:
            if not self._given_up:
                self._granted.set()
                return
        self._free()

    def _free(self) -> None:
        # Closing would not do while a forked child has the file open too.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)


def _holder(path: Path) -> str:
    """Whom the lock file names; it names nobody in the instant between lock and signature."""
    try:
        pid = path.read_text(errors="replace").partition("\n")[0]
    except OSError:
        pid = ""
    if pid == str(os.getpid()):
        return f"this very process ({pid})"
    return f"process {pid}" if pid.isdigit() else "another process"


def _file_name(host: str) -> str:
    """Readable, and of no other host: what a file name may not hold is replaced, a digest tells them apart."""
    readable = re.sub(r"[^A-Za-z0-9_.+-]", "_", host)[:60]
    return f"{readable}-{hashlib.sha256(host.encode(errors='surrogateescape')).hexdigest()[:16]}.lock"


def _folder() -> Path:
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return _private(Path(chosen))
    return _private(_private(Path(tempfile.gettempdir(), f"hetgpu-{os.geteuid()}")) / "leases")


def _private(folder: Path) -> Path:
    """`folder`, made with mode 0700 if need be; raises UsageError unless it is ours, and only ours to write to."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise UsageError(f"{folder} cannot hold leases: {error.strerror}; {_ADVICE}") from error
    problem = None
    if not stat.S_ISDIR(found.st_mode):
        problem = "is a symbolic link"
    elif found.st_uid != os.geteuid():
        problem = f"belongs to user id {found.st_uid}, not to you ({os.geteuid()})"
    elif found.st_mode & 0o022:
        problem = f"can be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    if problem:
        raise UsageError(f"{folder} cannot hold leases: it {problem}; {_ADVICE}")
    return folder
