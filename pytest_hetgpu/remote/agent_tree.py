"""The processes of a node: their table, their descendants, and their end. Python 3.6 or later."""

import collections
import contextlib
import ctypes
import errno
import os
import select
import time
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple

Table = Dict[int, Tuple[int, str, str]]

PR_SET_CHILD_SUBREAPER = 36
SYS_PIDFD_OPEN = 434  # on every architecture
POLL_INTERVAL = 0.01  # seconds


def become_subreaper() -> bool:
    """Adopt orphaned descendants; return whether the kernel agreed."""
    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0) == 0)


def pidfd(pid: int) -> int:
    """Return a file descriptor that is readable once the process has ended. Raises OSError if there is none."""
    if hasattr(os, "pidfd_open"):
        return int(os.pidfd_open(pid))
    handle = int(ctypes.CDLL(None, use_errno=True).syscall(SYS_PIDFD_OPEN, pid, 0))
    if handle < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return handle


def processes() -> Table:
    """Return parent, name and state (Z: ended, not reaped) of every process."""
    table: Table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = (entry / "stat").read_text(errors="replace")
                name, _, rest = text.partition("(")[2].rpartition(")")
                state, parent = rest.split()[:2]
                table[int(entry.name)] = (int(parent), name, state)
    return table


def still_running(pids: Iterable[int], seconds: Optional[float]) -> Set[int]:
    """Return those of `pids` that still run after `seconds` (None: no limit), or {} once all have ended. Reap none."""
    deadline = None if seconds is None else time.monotonic() + seconds
    poll = select.poll()
    running: Dict[int, int] = {}
    try:
        for pid in pids:
            try:
                handle = pidfd(pid)
            except OSError as error:
                if error.errno == errno.ESRCH:
                    continue
                return poll_processes(set(pids), deadline)  # a kernel before 5.3, or no descriptors left
            running[handle] = pid
            poll.register(handle, select.POLLIN)
        while running:
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            events = poll.poll(left)
            for handle, _ in events:
                poll.unregister(handle)
                os.close(handle)
                del running[handle]
            if not events:
                break
        return set(running.values())
    finally:
        for handle in running:
            os.close(handle)


def poll_processes(pids: Set[int], deadline: Optional[float]) -> Set[int]:
    """Do the same as `still_running` on a kernel that cannot notify about the end of a process."""
    while True:
        table = processes()
        left = {pid for pid in pids if pid in table and table[pid][2] not in "ZX"}
        if not left or (deadline is not None and time.monotonic() > deadline):
            return left
        time.sleep(POLL_INTERVAL)


def send_signals(pids: Iterable[int], *numbers: int) -> None:
    """Send signals to processes that may have ended."""
    for pid in pids:
        for number in numbers:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def descendants(table: Table, roots: Iterable[int], spared: Iterable[int] = ()) -> Iterator[int]:
    """Yield the descendants of `roots`, without `spared` and their descendants."""
    children: Dict[int, List[int]] = collections.defaultdict(list)
    for pid, (parent, _, _) in table.items():
        children[parent].append(pid)
    waiting, seen = list(roots), set(spared)
    while waiting:
        for pid in children[waiting.pop()]:
            if pid not in seen:
                seen.add(pid)
                waiting.append(pid)
                yield pid
