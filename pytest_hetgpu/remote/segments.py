"""Finds shared memory that MPI leaves in /dev/shm when ranks are killed, and removes unused segments.

    python3 - '["mpich_shm_1bb34a04_0", ...]' < THIS

removes those of these segments that no process uses. The names are those of MPICH 5 (`mpich_shm_WORLD_NODE`), of Open
MPI 4 (`vader_segment.HOST.UID.JOB.RANK`) and 5 (`sm_segment...`), and of UCX. A segment counts only if it is a file of
this user that no other user may open. It must also be proven that no process uses it. Python 3.6 or later.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import stat
import sys
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

FOLDER = "/dev/shm"  # noqa: S108 - only looked through
NAME = re.compile(
    r"(?:mpich_(?:shm|vci)_[0-9a-f]{1,8}_\d+|(?:vader|sm)_segment\.[\w.-]+\.[0-9a-f]+\.\d+|ucx_shm_posix_[0-9a-f]+)\Z"
)
FIRST_PID = "pid:[4026531836]"  # the PID namespace of no container (linux/proc_ns.h)
GONE, DENIED = (errno.ENOENT, errno.ESRCH), (errno.EACCES, errno.EPERM)


class SegmentUse(NamedTuple):
    """The segments in use, and the processes of this user that cannot be inspected."""

    held: Set[str]
    unread: List[int]


class SegmentScan(NamedTuple):
    """The segments of this user: `unused` ones, and `doubtful` ones with the reason `why`."""

    unused: Dict[str, os.stat_result]
    doubtful: Dict[str, os.stat_result]
    why: str


def names() -> Set[str]:
    """Return the names of all MPI segments, of any user."""
    try:
        return {name for name in os.listdir(FOLDER) if NAME.match(name)}  # noqa: PTH208 - names are what is needed
    except OSError:
        return set()


def scan(wanted: Optional[Iterable[str]] = None) -> SegmentScan:
    """Return the segments of this user, of `wanted` only. Omit those that a process visibly uses."""
    found = {}
    for name in names() if wanted is None else wanted:
        with contextlib.suppress(OSError):
            status = os.lstat(os.path.join(FOLDER, name))  # noqa: PTH118
            private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
            if NAME.match(name) and private:
                found[name] = status
    tmpfs = bool(found) and on_tmpfs()
    unused = {name: found.pop(name) for name in list(found) if tmpfs and unopened(os.path.join(FOLDER, name))}  # noqa: PTH118
    if not found:
        return SegmentScan(unused, {}, "")
    use = used(found)
    others = {name: status for name, status in found.items() if name not in use.held}
    why = doubt(use.unread) if others else ""
    return SegmentScan(unused, others, why) if why else SegmentScan({**unused, **others}, {}, "")


def on_tmpfs() -> bool:
    """Return whether the folder is a tmpfs: an overlay may lose track of mapped files."""
    try:
        device = os.stat(FOLDER).st_dev  # noqa: PTH116
        with open("/proc/self/mountinfo") as file:  # noqa: PTH123
            lines = [line.partition(" - ") for line in file]
    except OSError:
        return False
    wanted = f"{os.major(device)}:{os.minor(device)}"
    return any(head.split()[2] == wanted and tail.split()[0] == "tmpfs" for head, _, tail in lines)


def unopened(path: str) -> bool:
    """Return whether it is certain that no process of any namespace has a file open or mapped.

    The kernel grants a write lease only on a file that is not open elsewhere. A mapping keeps its file open. Linux
    before 5.3 grants none on a tmpfs.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # A process that opens the file now has us sent a signal: SIGIO would end us, SIGURG is ignored.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def doubt(unread: List[int]) -> str:
    """Return why /proc may not show every process that uses a segment; "" if it does."""
    try:
        if os.readlink("/proc/self/ns/pid") != FIRST_PID:  # noqa: PTH115
            return "processes outside this container may use it; run `hetgpu clean` on its host"
    except OSError as error:
        return f"/proc cannot be read ({error.strerror})"
    if unread:
        those = ", ".join(map(str, unread[:5])) + (", ..." if unread[5:] else "")
        return f"process {those} of this user may use it and cannot be read; `sudo fuser -v {FOLDER}/*` shows who does"
    return ""


def used(wanted: Iterable[str], pids: Optional[Iterable[int]] = None) -> SegmentUse:
    """Return the segments in use by processes (`pids` only), and the processes that cannot be inspected."""
    patterns = {name: name.encode() for name in wanted}
    use = SegmentUse(set(), [])
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pids is None else pids:  # noqa: PTH208
        text = held_by(pid)
        if text is None:
            use.unread.append(pid)
        else:
            use.held.update(name for name, pattern in patterns.items() if pattern in text)
    return use


def held_by(pid: int) -> Optional[bytes]:
    """Return the names of files that a process has open or mapped.

    Return None for a process of this user that cannot be inspected. Open files come first: a process that maps a file
    has it open until then.
    """
    place = f"/proc/{pid}"
    try:
        with open(place + "/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] in b"ZX":  # /proc shows nothing of an ended process, but one of its threads may still run
            return b"" if int(fields[17]) <= 1 else None
        links = [target(place + "/fd/" + number) for number in os.listdir(place + "/fd")]  # noqa: PTH208
        with open(place + "/maps", "rb") as file:  # noqa: PTH123
            return b"\n".join([*links, file.read()])
    except OSError as error:
        return b"" if error.errno in GONE or (error.errno in DENIED and not ours(pid)) else None


def target(link: str) -> bytes:
    """Return the name of an open file; empty if it was closed meanwhile."""
    try:
        return os.readlink(link).encode(errors="replace")  # noqa: PTH115
    except OSError as error:
        if error.errno in GONE:
            return b""
        raise


def ours(pid: int) -> bool:
    """Return whether a process may open the files of this user. The first process is no rank."""
    try:
        return pid > 1 and os.lstat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError as error:
        return error.errno not in GONE


def remove(wanted: Iterable[str]) -> List[str]:
    """Remove those of the segments that are ours and unused; return their names."""
    removed = []
    for name in scan(wanted).unused:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(FOLDER, name))  # noqa: PTH108, PTH118
            removed.append(name)
    return removed


if __name__ == "__main__":
    remove(json.loads(sys.argv[1]))
