"""Locks of one machine; the holder of the lock of a host uses that host. Python 3.6 or later.

This file is imported, and sent as text to other hosts. There `serve` locks and frees on behalf of its pipe.
A lock is an exclusive flock(2): the kernel frees it when its holder dies. All users of a machine share the lock files,
in a sticky folder of root. The files stay: if one were removed while in use, a name could have two holders.
The system call flock(2) is not fair: a new caller may get a free lock before waiters. So these queue up (`WaitQueue`).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import re
import select
import stat
import struct
import threading
from typing import Any, Dict, List, Optional

COMMON = ("/run/lock", "/tmp")  # noqa: S108 - root's, sticky, and every user's of a machine
HOST = "host"
SILENCE = 120.0  # seconds without a message after which a remote holder counts as dead
_LONGEST = 4096  # bytes of a lock file that are read
_TRIES = 100
_GETLK, _SETLK, _SETLKW = 36, 37, 38  # F_OFD_*; Python has names for them since 3.9
_RANGE = "hhqqi4x"  # struct flock: type, whence, start, length, process
_PLACES = 1 << 40
_DIGITS = 20  # of the number of the last place
_OVERFLOW = 65534  # the user id of root in a user namespace without root

Holder = Dict[str, Any]


class LockFileError(Exception):
    """A lock file that cannot be used, with the reason."""


def common_folder() -> str:
    """Return the folder that all users of this machine share; "" if there is none."""
    for place in COMMON:
        with contextlib.suppress(OSError):
            found = os.lstat(place)
            safe = found.st_uid in (0, _OVERFLOW) and stat.S_ISDIR(found.st_mode)
            safe = safe and not os.statvfs(place).f_flag & os.ST_RDONLY
            if safe and found.st_mode & stat.S_ISVTX and found.st_mode & stat.S_IWOTH:
                return place
    return ""


class WaitQueue:
    """A queue for a lock, in a file. Each waiter locks a byte, its place, and waits for the byte before.

    Places are numbered. The file holds the last number, and is locked as a whole while a place is given. A waiter that
    dies leaves the queue, as the kernel frees its byte. A read-only or corrupt file costs the order, and nothing else.
    `place` is 0 outside the queue.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.place = 0

    def empty(self) -> bool:
        """Return whether the queue is empty. Call it while the file is locked."""
        try:
            return self._byte(_GETLK, fcntl.F_WRLCK, self._last()) == fcntl.F_UNLCK
        except OSError:
            return True

    def join(self) -> bool:
        """Take the last place; False if that is impossible. Call it while the file is locked."""
        last = self._last()
        with contextlib.suppress(OSError):
            for place in range(last + 1, last + _TRIES):
                with contextlib.suppress(BlockingIOError, PermissionError):  # taken: the number was overwritten
                    self._byte(_SETLK, fcntl.F_WRLCK, place)
                    os.pwrite(self._number, b"%0*d" % (_DIGITS, place), 0)
                    self.place = place
                    break
        return self.place > 0

    def wait(self) -> None:
        """Wait until the waiter before has left."""
        self._byte(_SETLKW, fcntl.F_WRLCK, self.place - 1)
        self._byte(_SETLK, fcntl.F_UNLCK, self.place - 1)

    def leave(self) -> None:
        """Leave the queue; the next waiter continues."""
        self._byte(_SETLK, fcntl.F_UNLCK, self.place)
        self.place = 0

    def _last(self) -> int:
        try:
            return int(os.pread(self._number, _DIGITS, 0)) % _PLACES
        except (OSError, ValueError):
            return 0

    def _byte(self, command: int, kind: int, place: int) -> int:
        found = fcntl.fcntl(self._number, command, struct.pack(_RANGE, kind, os.SEEK_SET, place, 1, 0))
        return int(struct.unpack(_RANGE, found)[0])


class HostLock:
    """A lock of `name` for `who` (fields for people). Equal locks have an equal `identity`, on any machine."""

    def __init__(self, folder: str, name: str, who: Holder) -> None:
        readable = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)[:60]
        digest = "-" + hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]
        self.name = name
        self.path = os.path.join(folder, "hetgpu-" + readable + ("" if name == HOST else digest))  # noqa: PTH118
        self.who = dict(who, pid=os.getpid())
        self._turn, self._lock = _open(self.path + ".turn"), _open(self.path + ".lock")
        found = os.fstat(self._lock)
        self.identity = ":".join((_boot(), str(found.st_dev), str(found.st_ino)))
        self._queue = WaitQueue(self._turn)
        self._mutex = threading.Lock()
        self._granted = threading.Event()
        self._waiting = False
        self._released = False

    lost = False  # a lock of this machine ends only with its holder

    def granted(self, seconds: Optional[float]) -> bool:
        """Wait `seconds` (None: any time) and return whether the lock is held. A further call continues the wait.

        Return False for a lock that was released, also in the meantime.
        """
        with self._mutex:
            if self._released:
                return False
            may_wait = seconds is None or seconds > 0
            if self._try_lock(may_wait):
                self._granted.set()
            elif may_wait and not self._waiting:
                self._waiting = True
                # flock(2) has no timeout.
                threading.Thread(target=self._wait, name="lease " + self.name, daemon=True).start()
        if self._waiting:
            self._granted.wait(seconds)
        with self._mutex:
            held = self._granted.is_set() and not self._released
            if held:
                self._write_holder(self.who)
        return held

    def release(self) -> None:
        """Free the lock, or stop waiting for it. Further calls have no effect."""
        with self._mutex:
            if self._released:
                return
            self._released = True
            if self._waiting and not self._granted.is_set():
                return  # the waiting thread frees it
            if self._granted.is_set():
                self._write_holder({})
            self._free()

    def holder(self) -> Holder:
        """Return the holder by the lock file; by the kernel if both differ."""
        return _holder(self._lock)

    def _try_lock(self, may_wait: bool) -> bool:
        """Return whether the lock is held. If not, and with `may_wait`, join the queue unless another is joining it."""
        if self._waiting or self._granted.is_set():
            return self._granted.is_set()
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            if self._queue.empty():
                with contextlib.suppress(OSError):
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
            if may_wait:
                self._queue.join()
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
        return False

    def _wait(self) -> None:
        if not self._queue.place:
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            if self._queue.join():
                fcntl.flock(self._turn, fcntl.LOCK_UN)
        if self._queue.place:
            self._queue.wait()
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if self._queue.place:
            self._queue.leave()
        else:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
        with self._mutex:
            if self._released:
                self._free()
            self._granted.set()

    def _write_holder(self, who: Holder) -> None:
        with contextlib.suppress(OSError):  # another user's file may be read-only; the kernel has the pid
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, json.dumps(who).encode()[:_LONGEST] if who else b"", 0)

    def _free(self) -> None:
        for number in (self._lock, self._turn):
            # Closing would not do while a forked child has the file open too.
            fcntl.flock(number, fcntl.LOCK_UN)
            os.close(number)


def _open(path: str) -> int:
    """Open a lock file that all users may write to. Raise LockFileError for anything but a plain file."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for _ in range(_TRIES):
        try:
            number = os.open(path, flags | os.O_RDWR)
        except FileNotFoundError:
            # Not O_CREAT alone: for another user's file in a sticky folder the kernel refuses that (protected_regular).
            try:
                number = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue
            except OSError as error:
                raise LockFileError(path + " cannot be made: " + str(error.strerror)) from error
            os.fchmod(number, 0o666)
            return number
        except PermissionError:
            try:
                number = os.open(path, flags | os.O_RDONLY)
            except OSError as error:
                raise LockFileError(_owned(path) + ", and not open to you: " + str(error.strerror)) from error
        except OSError as error:
            raise LockFileError(path + " cannot be used as a lock file: " + str(error.strerror)) from error
        found = os.fstat(number)
        # A link to another file would have this process write into that file.
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return number
        os.close(number)
        if found.st_nlink:
            raise LockFileError(_owned(path) + ", and no plain file with one name")
    raise LockFileError(path + " comes and goes")


def _owned(path: str) -> str:
    with contextlib.suppress(OSError):
        return path + " is " + user_name(os.lstat(path).st_uid) + "'s"
    return path + " is there"


def user_name(uid: int) -> str:
    """Return the name of a user id, or the id."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "user " + str(uid)


def _holder(number: int) -> Holder:
    try:
        fields = json.loads(os.pread(number, _LONGEST, 0).decode(errors="replace"))
    except (OSError, ValueError):
        fields = {}
    fields = {str(key): value for key, value in fields.items()} if isinstance(fields, dict) else {}
    pid = _locker(os.fstat(number).st_ino)
    if pid is None or fields.get("pid") == pid:
        return fields
    with contextlib.suppress(OSError):
        return {"pid": pid, "user": user_name(os.lstat("/proc/" + str(pid)).st_uid)}
    return {}


def _locker(inode: int) -> Optional[int]:
    """Return the process that has locked a file, by the kernel; None if it is unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/locks") as file:  # noqa: PTH123
        for line in file:
            words = line.split()
            if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
                return int(words[4]) or None  # 0: of another namespace
    return None


def _boot() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        return file.read().strip()
    return os.uname().nodename


class LockServer:
    """A server of locks of this machine for the other end of a pipe, one at a time. Answers are lines of JSON."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._locks: List[HostLock] = []
        self._replying = threading.RLock()

    def reply(self, **answer: Any) -> None:
        """Print an answer."""
        with self._replying:
            os.write(1, json.dumps(answer).encode() + b"\n")

    def handle(self, line: str) -> None:
        """Serve a request: a JSON object (the future holder), `who`, `free`, or nothing. Raise LockFileError."""
        if line == "free":
            with self._replying:
                self._locks.pop().release()
                self.reply(freed=True)
        elif line == "who":
            self.reply(holder=self._locks[-1].holder())
        elif line:
            self._locks.append(HostLock(self._folder, HOST, json.loads(line)))
            threading.Thread(target=self._grant, args=(self._locks[-1],), daemon=True).start()

    def _grant(self, lock: HostLock) -> None:
        """Wait for a lock and report it, unless it was freed in the meantime."""
        if lock.granted(None):
            with self._replying:
                if self._locks[-1:] == [lock]:
                    self.reply(held=True)


def serve() -> None:
    """Lock and free this machine on behalf of the pipe. End when the pipe closes, or is silent too long."""
    folder = common_folder()
    server = LockServer(folder)
    if not folder:
        server.reply(refused="no folder there that all users share (" + ", ".join(COMMON) + ")")
        return
    try:
        server.reply(hello=HostLock(folder, HOST, {}).identity)
        for line in _lines():
            server.handle(line)
    except LockFileError as error:
        server.reply(refused=str(error))
    os._exit(0)


def _lines() -> Any:
    """Yield the lines of stdin as they arrive, until its end or a long silence."""
    kept = b""
    while select.select([0], [], [], SILENCE)[0]:
        data = os.read(0, 4096)
        if not data:
            return
        *lines, kept = (kept + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)


if __name__ == "__main__":
    serve()
