"""Workers of pytest-xdist that a signal has stopped: they end only once they are continued."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_PAUSE = 0.2  # seconds between two looks
_LOOKS = 300  # a minute
_EXIT = 10  # seconds after which pytest-xdist kills a worker that is to end
# The name of an open file stays true if its folder is renamed. Each writer but pytest itself (`main`) is a worker.
_JOURNAL = re.compile(r"/.*/journal/(?!main\.)(?P<writer>[^/]+)\.jsonl(?: \(deleted\))?")


def keep_awake(say: Callable[[str], None]) -> None:
    """Continue stopped workers of this process for a minute, and print a line on each once.

    A signal takes effect some time after it was sent: one look would miss it.
    """
    said: set[str] = set()

    def look() -> None:
        for line in continued():
            if line not in said:
                said.add(line)
                say(line)

    def go_on() -> None:
        for _ in range(_LOOKS):
            time.sleep(_PAUSE)
            look()

    look()
    threading.Thread(target=go_on, name="hetgpu awake", daemon=True).start()


def continued() -> Iterator[str]:
    """Send SIGCONT to each stopped worker of this process, and give a sentence on each."""
    for pid in _stopped_children():
        name = _writer(pid)
        if name:
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)
                yield (
                    f"worker {name} (pid {pid}) was stopped by a signal (state T): it was sent SIGCONT, "
                    f"and has {_EXIT} s to end its cell before pytest-xdist kills it"
                )


def _stopped_children() -> Iterator[int]:
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                if state == "T" and int(parent) == os.getpid():
                    yield int(entry.name)


def _writer(pid: int) -> str:
    """Return the name of the writer whose journal a process has open; empty for a process of something else."""
    with suppress(OSError):
        for link in (_PROC / str(pid) / "fd").iterdir():
            if found := _JOURNAL.fullmatch(os.readlink(link)):  # noqa: PTH115 - pathlib would change what is no path
                return found["writer"]
    return ""
