"""The watchdog: a process that waits until a run has ended in any way, and has its leftovers removed.

It runs by its path with `python -I -S`, so that it stays small, and imports only the standard library. Another program
removes the leftovers; it starts only if there are any. Arguments: the pid and start of the run's process, its ledger,
and the command that processes the ledger. Exit status of the command: 0: done; 1: something is left, try again; others:
nothing more to do.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time

_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)  # seconds, the last one again and again
_PATIENCE = 900.0  # seconds of trying; then the ledger waits for `hetgpu clean`
_WITHOUT_PIDFD = 0.5
_RETRY = 1


def main() -> int:
    """Wait, then run the command until the ledger is processed."""
    pid, start, ledger, *command = sys.argv[1:]
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - pathlib is large
        file.write("-900")  # only root may
    if not _waited(int(pid), start):
        return 0
    deadline, tries = time.monotonic() + _PATIENCE, 0
    while os.path.exists(ledger):  # noqa: PTH110 - pathlib is large
        code = _run(command)
        if code != _RETRY or time.monotonic() > deadline:
            return code
        time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
        tries += 1
    return 0


def _waited(pid: int, start: str) -> bool:
    """Wait until the process has ended (return True), or has reported that nothing is left to do (return False)."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    ending = _pidfd(pid)
    if _started(pid) != start:
        return True
    if ending is not None:
        poll.register(ending, select.POLLIN)
    listening = True
    while True:
        ready = [number for number, _ in poll.poll(None if ending is not None else _WITHOUT_PIDFD * 1000)]
        if ending in ready or (ending is None and _started(pid) != start):
            # The pipe may hold its last byte.
            return not (listening and select.select([0], [], [], 0)[0] and os.read(0, 1) == b"q")
        if 0 in ready:
            if os.read(0, 1) == b"q":
                return False
            poll.unregister(0)  # closed, though the process may go on
            listening = False


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # a kernel before 5.3, or it has ended
        return None


def _started(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is large
            rest = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if rest[0] in (b"Z", b"X") else rest[19].decode()


def _run(command: list[str]) -> int:
    try:
        pid = os.posix_spawn(command[0], command, os.environ)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except OSError:
        return _RETRY


if __name__ == "__main__":
    sys.exit(main())
