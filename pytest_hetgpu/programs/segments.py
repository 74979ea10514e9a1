"""Shared memory that MPI leaves in /dev/shm when ranks are killed: which of it nobody uses, and its removal.

    python3 - '["mpich_shm_1bb34a04_0", ...]' < THIS

removes those of these segments that no process uses. The names are those of MPICH 5 (`mpich_shm_WORLD_NODE`), of Open
MPI 4 (`vader_segment.HOST.UID.JOB.RANK`) and 5 (`sm_segment...`), and of UCX. A segment counts only if it is a file of
this user that no other user may open, and if every process that may use it can be seen. Python 3.6 or later.
"""

import contextlib
import json
import os
import re
import stat
import sys
from typing import Dict, Iterable, List, Optional, Set

FOLDER = "/dev/shm"  # noqa: S108 - only looked through
NAME = re.compile(
    r"(?:mpich_(?:shm|vci)_[0-9a-f]{1,8}_\d+|(?:vader|sm)_segment\.[\w.-]+\.[0-9a-f]+\.\d+|ucx_shm_posix_[0-9a-f]+)\Z"
)
FIRST_PID, FIRST_IPC = "pid:[4026531836]", "ipc:[4026531839]"  # those of no container (linux/proc_ns.h)


def names() -> Set[str]:
    """Return the names of all segments of MPI there are, whoever made them."""
    try:
        return {name for name in os.listdir(FOLDER) if NAME.match(name)}  # noqa: PTH208 - names are what is needed
    except OSError:
        return set()


def unused(wanted: Optional[Iterable[str]] = None) -> Dict[str, os.stat_result]:
    """Return the segments of this user (of `wanted`) that no process has open or mapped."""
    found = {}
    for name in names() if wanted is None else wanted:
        with contextlib.suppress(OSError):
            status = os.lstat(os.path.join(FOLDER, name))  # noqa: PTH118
            ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
            if NAME.match(name) and ours:
                found[name] = status
    if found and all_seen():
        held = used(found)
        return {} if held is None else {name: status for name, status in found.items() if name not in held}
    return {}


def all_seen() -> bool:
    """Return whether /proc has every process that shares this /dev/shm: not in a container with the host's memory."""
    try:
        return os.readlink("/proc/self/ns/pid") == FIRST_PID or os.readlink("/proc/self/ns/ipc") != FIRST_IPC  # noqa: PTH115
    except OSError:
        return False


def used(wanted: Iterable[str], pids: Optional[Iterable[int]] = None) -> Optional[Set[str]]:
    """Return those of the segments that processes use, of `pids` only; None where one of ours cannot be looked at."""
    patterns = {name: name.encode() for name in wanted}
    held = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pids is None else pids:  # noqa: PTH208
        text = held_by(pid)
        if text is None:
            return None
        held |= {name for name, pattern in patterns.items() if pattern in text}
    return held


def held_by(pid: int) -> Optional[bytes]:
    """Return the names of files that a process has open or mapped; None for one of ours that cannot be looked at.

    Open files come first: a process that maps a file has it open until then.
    """
    place = f"/proc/{pid}"
    try:
        links = []
        for number in os.listdir(place + "/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                links.append(os.readlink(place + "/fd/" + number).encode(errors="replace"))  # noqa: PTH115
        with open(place + "/maps", "rb") as file:  # noqa: PTH123
            return b"\n".join(links) + file.read()
    except PermissionError:
        try:
            # What another user runs cannot have opened a file that is only ours. The first process is no rank.
            return None if os.lstat(place).st_uid == os.geteuid() and pid > 1 else b""
        except OSError:
            return b""
    except OSError:
        return b""


def remove(wanted: Iterable[str]) -> List[str]:
    """Remove those of the segments that are ours and that nobody uses; return their names."""
    removed = []
    for name in unused(wanted):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(FOLDER, name))  # noqa: PTH108, PTH118
            removed.append(name)
    return removed


if __name__ == "__main__":
    remove(json.loads(sys.argv[1]))
