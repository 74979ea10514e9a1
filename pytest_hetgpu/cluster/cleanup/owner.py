"""The owner of resources: one process of one boot of one machine, as a text that any label can hold."""

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


class OwnerState(enum.Enum):
    """The state of an owner, as far as this process can see it."""

    LIVE = "lives"
    DEAD = "is dead"
    UNKNOWN = "cannot be asked"


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that started resources. Its pid may be reused by now; all of these fields together are unique.

    `machine` is a digest of the machine's id and name. `start` is in clock ticks since the boot, `token` is random.
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
        """All fields as one text, of characters that no shell, sshd or engine interprets."""
        return "/".join((MARK, *(re.sub(r"[^A-Za-z0-9_.@+-]", "_", part) for part in astuple(self))))

    @property
    def who(self) -> str:
        """A description for people: `ada@node7, process 4711`."""
        return f"{self.user}@{self.host}, process {self.pid}"


def parse(text: str) -> Owner | None:
    """Parse the text of an owner; None for any other text."""
    mark, *parts = text.split("/")
    if mark != MARK or len(parts) != len(fields(Owner)) or not all(_PART.fullmatch(part) for part in parts):
        return None
    owner = Owner(*parts)
    return owner if owner.pid.isdecimal() and owner.uid.isdecimal() else None


def myself(run: str) -> Owner:
    """Return this process as the owner of the resources that it makes for a run."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        user = str(os.geteuid())
    host, pid = os.uname().nodename or "-", os.getpid()
    where = (_machine(), _boot(), _namespace(), str(pid), started(pid) or "-")
    found = Owner(run or "-", user, host, str(os.geteuid()), *where, secrets.token_hex(8))
    parsed = parse(found.text)  # as parsed from its text, so that both are equal
    assert parsed is not None
    return parsed


@cache
def _this_process() -> Owner:
    return myself("-")


def dead_owner(host: str) -> Owner:
    """Return the dead owner of unused shared memory: this user, at a host of that name ("": this one)."""
    me = _this_process()
    return replace(me, host=host or me.host, pid=str(_NO_PID), start="-")


def state_of(owner: Owner) -> OwnerState:
    """Return whether the owner still runs. UNKNOWN on another machine, or in a container with hidden processes."""
    if owner.machine != _machine():
        return OwnerState.UNKNOWN
    if owner.boot != _boot():
        # Containers of one image have the same machine id on every machine.
        plain = owner.namespace == _INITIAL == _namespace() and _boot() != "-" != owner.boot
        return OwnerState.DEAD if plain else OwnerState.UNKNOWN
    if owner.namespace != _namespace():
        return OwnerState.UNKNOWN
    others = False
    try:
        os.kill(int(owner.pid), 0)
    except ProcessLookupError:
        return OwnerState.DEAD
    except (OSError, OverflowError) as error:
        others = isinstance(error, PermissionError)
    fields = _stat(int(owner.pid))
    if not fields:
        # With hidepid, /proc does not list processes of other users.
        return OwnerState.UNKNOWN if others or Path("/proc", owner.pid).exists() else OwnerState.DEAD
    ended = fields[0] in "ZX"  # though its parent has not waited for it
    return OwnerState.LIVE if not ended and owner.start in (fields[19], "-") else OwnerState.DEAD


def started(pid: int) -> str | None:
    """Return the start of a process in clock ticks since the boot; None if it is unknown or has ended."""
    fields = _stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else None


def _stat(pid: int) -> list[str]:
    """Return the fields after the name in /proc/PID/stat: first the state, at 19 the start. Empty if unreadable."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return fields if len(fields) > 19 else []


@cache
def _machine() -> str:
    """Return a digest of the machine id. systemd requires that the id itself stays confidential."""
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
