"""A lock per writer of a run. Each writer locks its journal while it lives, and the kernel frees the lock.

The lock is a flock(2) on the journal itself. On a file system without locks, no writer can be detected, and all else
works.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from pytest_hetgpu.errors import UsageError

_PROBE_SECONDS = 0.5  # a probe (`writer_alive`) of another process may hold the lock for this time
_TAIL_BYTES = 1 << 16  # the end of a journal, which names its writer
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)


def acquire(journal: int, path: Path, *, sole: bool) -> None:
    """Lock the open file of a journal for this process. Raises UsageError if a `sole` journal has a writer."""
    deadline = time.monotonic() + _PROBE_SECONDS
    while True:
        try:
            fcntl.flock(journal, (fcntl.LOCK_EX if sole else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            if sole:
                who = f"{describe_writer(path)} is still running it"
                raise UsageError(f"{_run_folder(path)}: {who}; wait for its end, or stop it") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return


def writer_alive(path: Path) -> bool | None:
    """Return whether the writer of a journal lives; None if that cannot be detected."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(file)


def wait_for_writers(journals: Iterable[Path], seconds: float) -> None:
    """Wait until all writers of these journals have ended. Raises UsageError, naming one, after `seconds`."""
    deadline = time.monotonic() + seconds
    for path in journals:
        while writer_alive(path):
            if time.monotonic() > deadline:
                who = f"{describe_writer(path)}, a worker of its earlier part, still runs"
                raise UsageError(f"{_run_folder(path)}: {who}; wait for its end, or stop it")
            time.sleep(0.05)


def describe_writer(path: Path) -> str:
    """Describe the last writer that the journal names: `process 4711 on host`."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        lines = []
    for line in reversed(lines):
        try:
            event = json.loads(line)
            pid, host = event["pid"], event.get("host", "")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        return f"process {pid}{f' on {host}' if host else ''}"
    return "another process"


def _run_folder(journal: Path) -> str:
    return str(journal.parent.parent)
