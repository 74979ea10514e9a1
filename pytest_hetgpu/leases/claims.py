"""Claims on one machine: whoever has the lock of a name has what it stands for. Python 3.6 or later.

Imported here, and sent as text to other hosts, where `serve` takes and frees a claim for whoever holds its pipe.
A claim is an exclusive flock(2), which the kernel frees when its holder dies, however it dies. All users of a machine
share the files: they lie in a folder of root's where nobody can remove another's file, and they stay, for a file that
is removed while it is in use would give the name two holders. Two locks a name make a turnstile: who waits for the
first one holds the second, so that whoever has just freed the first cannot take it again before those who came
meanwhile.
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
import threading
from typing import Any, Callable, Dict, List, Optional

COMMON = ("/run/lock", "/tmp")  # noqa: S108 - root's, sticky, and every user's of a machine
HOST = "host"
SILENCE = 120.0  # seconds without a word from afar after which a claim's holder is taken for dead
_LONGEST = 4096  # bytes that a lock file may say
_TRIES = 100
_OVERFLOW = 65534  # who root is in a namespace of users that lacks root

Who = Dict[str, Any]


class Refused(Exception):
    """A lock file that cannot be used, in words."""


def common_folder() -> str:
    """The folder that all users of this machine share; empty where there is none."""
    for place in COMMON:
        with contextlib.suppress(OSError):
            found = os.lstat(place)
            ours = found.st_uid in (0, _OVERFLOW) and stat.S_ISDIR(found.st_mode)
            if ours and found.st_mode & stat.S_ISVTX and found.st_mode & stat.S_IWOTH:
                return place
    return ""


class Claim:
    """One claim on `name`, made by `who` (fields for people). Its `identity` is equal for equal locks, anywhere."""

    def __init__(self, folder: str, name: str, who: Who) -> None:
        readable = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)[:60]
        digest = "-" + hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]
        self.name = name
        self.path = os.path.join(folder, "hetgpu-" + readable + ("" if name == HOST else digest))  # noqa: PTH118
        self.who = dict(who, pid=os.getpid())
        self._turn, self._lock = _open(self.path + ".turn"), _open(self.path + ".lock")
        found = os.fstat(self._lock)
        self.identity = ":".join((_boot(), str(found.st_dev), str(found.st_ino)))
        self._deciding = threading.Lock()
        self._granted = threading.Event()
        self._given_up = False
        self._waiting = False
        self._over = False

    lost = False  # a lock of this machine goes with its holder alone

    def granted(self, seconds: Optional[float]) -> bool:
        """Whether the lock is ours within `seconds` (None: any time); goes on waiting when it is asked again."""
        if self._waiting:
            self._granted.wait(seconds)
        elif self._at_once():
            self._granted.set()
        elif seconds is None or seconds > 0:
            self._waiting = True
            # flock(2) knows no timeout.
            threading.Thread(target=self._wait, name="lease " + self.name, daemon=True).start()
            self._granted.wait(seconds)
        if self._granted.is_set():
            self._sign(self.who)
        return self._granted.is_set()

    def release(self) -> None:
        """Frees the lock, or gives up waiting for it. Once is enough."""
        with self._deciding:
            if self._over:
                return
            self._over = self._given_up = True
            if self._waiting and not self._granted.is_set():
                return
        if self._granted.is_set():
            self._sign({})
        self._free()

    def holder(self) -> Who:
        """Who has the lock: what the lock file says, and what the kernel says where that speaks against it."""
        return _holder(self._lock)

    def _at_once(self) -> bool:
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
        return True

    def _wait(self) -> None:
        for number in (self._turn, self._lock):
            fcntl.flock(number, fcntl.LOCK_EX)
        fcntl.flock(self._turn, fcntl.LOCK_UN)
        with self._deciding:
            if not self._given_up:
                self._granted.set()
                return
        self._free()

    def _sign(self, who: Who) -> None:
        with contextlib.suppress(OSError):  # another user's file may be closed to us; the kernel knows us all the same
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, json.dumps(who).encode()[:_LONGEST] if who else b"", 0)

    def _free(self) -> None:
        for number in (self._lock, self._turn):
            # Closing would not do while a forked child has the file open too.
            fcntl.flock(number, fcntl.LOCK_UN)
            os.close(number)


def _open(path: str) -> int:
    """A lock file that all may write to, and that is what it seems; Refused for anything else."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for _ in range(_TRIES):
        try:
            number = os.open(path, flags | os.O_RDWR)
        except FileNotFoundError:
            # Not O_CREAT alone: for another user's file in a sticky folder the kernel refuses that (protected_regular).
            with contextlib.suppress(FileExistsError):
                number = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                os.fchmod(number, 0o666)
                return number
            continue
        except PermissionError:
            try:
                number = os.open(path, flags | os.O_RDONLY)
            except OSError as error:
                raise Refused(_owned(path) + ", and not open to you: " + str(error.strerror)) from error
        except OSError as error:
            raise Refused(path + " cannot be used as a lock file: " + str(error.strerror)) from error
        found = os.fstat(number)
        # A link to somebody's file would have us write into it.
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return number
        os.close(number)
        if found.st_nlink:
            raise Refused(_owned(path) + ", and no plain file with one name")
    raise Refused(path + " comes and goes")


def _owned(path: str) -> str:
    with contextlib.suppress(OSError):
        return path + " is " + user_name(os.lstat(path).st_uid) + "'s"
    return path + " is there"


def user_name(uid: int) -> str:
    """The user of a number, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "user " + str(uid)


def _holder(number: int) -> Who:
    try:
        said = json.loads(os.pread(number, _LONGEST, 0).decode(errors="replace"))
    except (OSError, ValueError):
        said = {}
    said = {str(key): value for key, value in said.items()} if isinstance(said, dict) else {}
    pid = _locker(os.fstat(number).st_ino)
    if pid is None or said.get("pid") == pid:
        return said
    with contextlib.suppress(OSError):
        return {"pid": pid, "user": user_name(os.lstat("/proc/" + str(pid)).st_uid)}
    return {}


def _locker(inode: int) -> Optional[int]:
    """The process that has a file locked, as the kernel tells it; None where it does not."""
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


def serve() -> None:
    """Takes and frees this machine's claim for whoever holds our pipe, and ends when that closes, or falls silent.

    Requests are lines: a JSON object (who wants it), `who`, `free`, or empty; answers are JSON lines.
    """
    writing = threading.Lock()

    def say(**answer: Any) -> None:
        with writing:
            os.write(1, json.dumps(answer).encode() + b"\n")

    folder = common_folder()
    if not folder:
        say(refused="no folder there that all users share (" + ", ".join(COMMON) + ")")
        return
    claims: List[Claim] = []
    try:
        say(hello=Claim(folder, HOST, {}).identity)
        for line in _lines():
            if line == "free":
                claims.pop().release()
                say(freed=True)
            elif line == "who":
                say(holder=claims[-1].holder())
            elif line:
                claims.append(Claim(folder, HOST, json.loads(line)))
                threading.Thread(target=_take, args=(claims[-1], say), daemon=True).start()
    except Refused as error:
        say(refused=str(error))
    os._exit(0)


def _take(claim: Claim, say: Callable[..., None]) -> None:
    if claim.granted(None):
        say(held=True)


def _lines() -> Any:
    """The lines of stdin as they come, to its end or a long silence."""
    kept = b""
    while select.select([0], [], [], SILENCE)[0]:
        data = os.read(0, 4096)
        if not data:
            return
        *lines, kept = (kept + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)


if __name__ == "__main__":
    serve()
