"""Who writes to a run: each writer holds a lock on its journal as long as it lives, which the kernel frees.

A lock is a flock(2) on the journal itself. Where a file system has none nobody can be told to live, and all goes on.
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

_PROBE_SECONDS = 0.5  # seconds that somebody who only looks whether a writer lives may take
_TAIL_BYTES = 1 << 16  # bytes at the end of a journal in which its writer is looked for
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)


def acquire(journal: int, path: Path, *, sole: bool) -> None:
    """Marks the open file of a journal as written by this process. UsageError for a `sole` one that has its writer."""
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
    """Whether the writer of a journal lives; None where that cannot be told."""
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
    """Returns once all writers of these journals have ended; UsageError, naming one, if that takes too long."""
    deadline = time.monotonic() + seconds
    for path in journals:
        while writer_alive(path):
            if time.monotonic() > deadline:
                who = f"{describe_writer(path)}, a worker of its earlier part, still runs"
                raise UsageError(f"{_run_folder(path)}: {who}; wait for its end, or stop it")
            time.sleep(0.05)


def describe_writer(path: Path) -> str:
    """Whom the journal names as its last writer: `process 4711 on host`."""
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
