"""Whose a thing is: one process of one boot of one machine, as a text that any label can hold."""

from __future__ import annotations

import enum
import getpass
import hashlib
import os
import re
import secrets
from dataclasses import astuple, dataclass, fields, replace
from functools import cache
from pathlib import Path

MARK = "hetgpu-owner-1"
_INITIAL = "4026531836"  # the namespace of processes that no container is in (PROC_PID_INIT_INO, linux/proc_ns.h)
_NO_PID = (1 << 22) + 1  # more than any process has (PID_MAX_LIMIT, linux/threads.h)
_PART = re.compile(r"[A-Za-z0-9_.@+-]+")


class Life(enum.Enum):
    """What can be told of an owner from here."""

    LIVE = "lives"
    DEAD = "is dead"
    UNKNOWN = "cannot be asked"


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that started things: its number alone may be another's by now, with all of this it is nobody else's.

    `machine` is a digest of the machine's id and name, `start` the process's start in clock ticks since the boot,
    `token` a random word of this process.
    """

    run: str
    user: str
    host: str
    uid: str
    machine: str
    boot: str
    namespace: str
    pid: str
    start: str
    token: str

    @property
    def text(self) -> str:
        """All of it, of characters that no shell, sshd or engine takes for anything but text."""
        return "/".join((MARK, *(re.sub(r"[^A-Za-z0-9_.@+-]", "_", part) for part in astuple(self))))

    @property
    def who(self) -> str:
        """In words: `ada@node7, process 4711`."""
        return f"{self.user}@{self.host}, process {self.pid}"


def parse(text: str) -> Owner | None:
    """The owner that a text names; None for what is no such text."""
    mark, *parts = text.split("/")
    if mark != MARK or len(parts) != len(fields(Owner)) or not all(_PART.fullmatch(part) for part in parts):
        return None
    owner = Owner(*parts)
    return owner if owner.pid.isdecimal() and owner.uid.isdecimal() else None


def myself(run: str) -> Owner:
    """Ourselves, as the owner of what it starts for a run."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        user = str(os.geteuid())
    host, pid = os.uname().nodename or "-", os.getpid()
    where = (_machine(), _boot(), _namespace(), str(pid), started(pid) or "-")
    found = Owner(run or "-", user, host, str(os.geteuid()), *where, secrets.token_hex(8))
    again = parse(found.text)  # what its text says of it, so that both are equal
    assert again is not None
    return again


@cache
def _me() -> Owner:
    return myself("-")


def nobody(host: str) -> Owner:
    """Return the owner, dead, of what no process uses any more: this user, at a host of that name ("": this one)."""
    me = _me()
    return replace(me, host=host or me.host, pid=str(_NO_PID), start="-")


def life(owner: Owner) -> Life:
    """Whether the owner still runs. UNKNOWN on another machine, or in a container whose processes we do not see."""
    if owner.machine != _machine():
        return Life.UNKNOWN
    if owner.boot != _boot():
        # Containers made of one image have one machine id wherever they run.
        plain = owner.namespace == _INITIAL == _namespace() and _boot() != "-" != owner.boot
        return Life.DEAD if plain else Life.UNKNOWN
    if owner.namespace != _namespace():
        return Life.UNKNOWN
    others = False
    try:
        os.kill(int(owner.pid), 0)
    except ProcessLookupError:
        return Life.DEAD
    except (OSError, OverflowError) as error:
        others = isinstance(error, PermissionError)
    fields = _stat(int(owner.pid))
    if not fields:
        # With hidepid there is nothing in /proc of what is another user's.
        return Life.UNKNOWN if others or Path("/proc", owner.pid).exists() else Life.DEAD
    ended = fields[0] in "ZX"  # though nobody has waited for it
    return Life.LIVE if not ended and owner.start in (fields[19], "-") else Life.DEAD


def started(pid: int) -> str | None:
    """When a process started, in clock ticks since the boot; None where that cannot be told, or it has ended."""
    fields = _stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else None


def _stat(pid: int) -> list[str]:
    """What follows the name in /proc/PID/stat: the state first, at 19 the start. Empty where that cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return fields if len(fields) > 19 else []


@cache
def _machine() -> str:
    """systemd asks that a machine's id itself is told to nobody."""
    ident = _read("/etc/machine-id") or _read("/var/lib/dbus/machine-id")
    return hashlib.sha256(f"hetgpu {ident} {os.uname().nodename}".encode()).hexdigest()[:16]


@cache
def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id") or "-"


def _namespace() -> str:
    try:
        return re.sub(r"\D", "", os.readlink("/proc/self/ns/pid")) or "-"  # noqa: PTH115 - it is no path
    except OSError:
        return "-"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
