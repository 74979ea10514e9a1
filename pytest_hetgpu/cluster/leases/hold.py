"""Lease all hosts of a job, in an order that is the same for every process. So no two processes wait for each other."""

from __future__ import annotations

import getpass
import math
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

from pytest_hetgpu.cluster.cleanup.owner import parse
from pytest_hetgpu.cluster.leases.host_lock import HostLock, LockFileError, common_folder
from pytest_hetgpu.cluster.leases.remote_lock import RemoteLock, remote_locks
from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.extensions.runtimes.process.ledger import tracker
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest
from pytest_hetgpu.model.job import Job, Node

FOLDER_VARIABLE = "HETGPU_LEASES"
TIMEOUT_VARIABLE = "HETGPU_LEASE_TIMEOUT"
USUAL_TIMEOUT = 3600.0
NOTICE = 2.0
"""Seconds of waiting after which the wait is reported."""

Waits = Callable[[str], None]
"""A function that reports a wait: called with the host and its holder, and with "" at the end of the wait."""

_ADVICE = f"remove it, or set {FOLDER_VARIABLE} to a folder that only you can write to"


@dataclass(frozen=True, slots=True)
class Holding:
    """The held leases, in the order in which they were acquired."""

    #: Names of the hosts for people.
    words: tuple[str, ...]
    #: Hosts that are held only against runs of this machine, with the reason.
    here: Mapping[str, str]
    _leases: tuple[_Lease, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        """The hosts whose lease may be another run's by now: the connection to their lock broke."""
        return tuple(words for words, lease in zip(self.words, self._leases, strict=True) if lease.lost)


class _Lease(Protocol):
    identity: str

    @property
    def lost(self) -> bool: ...

    def granted(self, seconds: float | None) -> bool: ...
    def release(self) -> None: ...
    def holder(self) -> Mapping[str, Any]: ...


def wanted(nodes: Iterable[Node]) -> tuple[LeaseRequest, ...]:
    """Return the leases that nodes need. The lock of a machine is on that machine, however it is reached.

    An engine over TLS cannot lock its host: the lease then excludes only runs of this machine. Nodes of a scheduler
    need no lease, as it gives them to one job at a time.
    """
    found = (runtime_of(node.hardware.runtime).lease(node) for node in nodes)
    return tuple(dict.fromkeys(one for one in found if one))


@contextmanager
def hold(
    leases: Iterable[LeaseRequest], *, cell: str = "", timeout: float | None = None, waits: Waits | None = None
) -> Iterator[Holding]:
    """Hold all of `leases` for a cell, and yield them. `waits` is called if that takes long.

    The wait for all of them takes at most `timeout` seconds (default: $HETGPU_LEASE_TIMEOUT, else an hour). Lock files
    of this machine are in $HETGPU_LEASES, else in a folder that all its users share. Calls must not be nested: a
    process that holds a host and requests it again waits for itself.

    Raise NotHere after a too long wait (it names the holder), or for an unusable lock file. Raise ProvisionError if a
    host is lost during the wait, and UsageError if other users could tamper with the folder.
    """
    limit = patience(os.environ) if timeout is None else timeout
    with ExitStack() as held:
        ordered = _in_order(tuple(leases), _who(cell), held)
        deadline = time.monotonic() + limit  # connecting to the hosts is no part of the wait
        for lease, one, _ in ordered:
            _take(lease, one, deadline, waits)
        here = {one.words: why for _, one, why in ordered if why}
        yield Holding(tuple(one.words for _, one, _ in ordered), here, tuple(lease for lease, _, _ in ordered))


def _take(lease: _Lease, one: LeaseRequest, deadline: float, waits: Waits | None) -> None:
    """Wait for one lease. Raise NotHere with its holder if that takes too long."""
    started = time.monotonic()
    if lease.granted(min(NOTICE, deadline - started)):
        return
    if time.monotonic() < deadline and _granted_late(lease, one, deadline, waits):
        return
    waited = time.monotonic() - started
    raise NotHere(f"host {one.words!r} is busy: {told(lease.holder())} (waited {waited:.1f} s)")


def _granted_late(lease: _Lease, one: LeaseRequest, deadline: float, waits: Waits | None) -> bool:
    """Return whether a reported wait succeeds; report its end in any case."""
    if not waits:
        return lease.granted(deadline - time.monotonic())
    waits(f"waits for host {one.words}: {told(lease.holder())}")
    try:
        return lease.granted(deadline - time.monotonic())
    finally:
        waits("")


def held(job: Job, waits: Callable[[Job, str], None] | None = None) -> AbstractContextManager[Holding]:
    """Return `hold` for all hosts of a job."""
    return hold(wanted(job.all_nodes), cell=job.label, waits=partial(waits, job) if waits else None)


def shut() -> None:
    """Close the connections to locks on other hosts."""
    remote_locks.close()


def patience(environ: Mapping[str, str]) -> float:
    """Return the seconds that a cell waits for its hosts. Raise UsageError if the setting is no such number."""
    text = environ.get(TIMEOUT_VARIABLE) or str(USUAL_TIMEOUT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        most = f"0 to {threading.TIMEOUT_MAX:.0f}, say 3600"
        raise UsageError(f"{TIMEOUT_VARIABLE}={text} is no number of seconds that can be waited for ({most})")
    return seconds


def ready(environ: Mapping[str, str]) -> None:
    """Check the timeout and the folder for leases that the user has set. Raise UsageError."""
    patience(environ)
    if environ.get(FOLDER_VARIABLE):
        _folder()


def told(who: Mapping[str, Any]) -> str:
    """Describe the holder of a lease: `ada@node7 holds it for cell x of run y since 12:00:07, process 4711`."""

    def text(key: str) -> str:
        """Return a field in printable form: another user may have written it."""
        value = who.get(key)
        plain = str(value) if isinstance(value, str | int) else ""
        return "".join(letter for letter in plain if letter.isprintable())[:100]

    if not text("pid"):
        return "another process holds it"
    mine = (text("launcher") or text("pid"), text("machine")) == (str(os.getpid()), os.uname().nodename)
    at = f"@{text('machine')}" if text("machine") else ""
    name = "this very process" if mine else f"{text('user') or 'somebody'}{at}"
    of = f" of run {text('run')}" if text("run") else ""
    what = f" for cell {text('cell')}{of}" if text("cell") else f" for something{of}" if of else ""
    since = f" since {text('since')}" if text("since") else ""
    return f"{name} holds it{what}{since}, process {text('launcher') or text('pid')}"


@cache
def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        return f"user {os.geteuid()}"


def _who(cell: str) -> dict[str, Any]:
    owner = parse(tracker().label)
    return {
        "user": _user(),
        "machine": os.uname().nodename,
        "launcher": os.getpid(),
        "run": owner.run if owner else "",
        "cell": cell,
        "since": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
    }


def _in_order(
    wanted: tuple[LeaseRequest, ...], who: dict[str, Any], held: ExitStack
) -> list[tuple[_Lease, LeaseRequest, str]]:
    """Return each lock once, ordered by identity. The order is the same for every process on every machine.

    With each, return the reason if its lock is on this machine and not on its own.
    """
    asked = [(one.name, one.reach) for one in wanted if one.reach is not None]
    kept = remote_locks.of(asked) if asked else {}
    leases: dict[str, tuple[_Lease, LeaseRequest, str]] = {}
    # A lock of this machine is taken directly, even if a remote address leads to it, too.
    for one in sorted(wanted, key=lambda one: (one.reach is not None, one.name)):
        keeper = kept[one.name, one.reach] if one.reach is not None else one.alone
        lease, why = (_Afar(keeper, who), "") if isinstance(keeper, RemoteLock) else (_here(one, who), keeper)
        if lease.identity not in leases:
            leases[lease.identity] = (lease, one, why)
            held.callback(lease.release)
        elif isinstance(lease, HostLock):
            lease.release()
    return [leases[identity] for identity in sorted(leases)]


def _here(one: LeaseRequest, who: dict[str, Any]) -> HostLock:
    """Return the lock of this machine, or one here for a host that has no own lock."""
    try:
        return HostLock(str(_folder()), one.name if one.reach is None else f"host {one.name}", who)
    except LockFileError as error:
        advice = f"have it removed, or set {FOLDER_VARIABLE} to a folder that only you can write to"
        raise NotHere(f"host {one.words!r} cannot be held: {error}; {advice}") from error


class _Afar:
    """A lease of a lock on another host."""

    def __init__(self, keeper: RemoteLock, who: dict[str, Any]) -> None:
        self.identity = keeper.identity
        self._keeper = keeper
        self._who = who
        self._asked = False

    @property
    def lost(self) -> bool:
        return self._keeper.lost

    def granted(self, seconds: float | None) -> bool:
        if not self._asked:
            self._asked = True
            self._keeper.ask(self._who)
        return self._keeper.granted(seconds)

    def release(self) -> None:
        if self._asked:
            self._keeper.free()

    def holder(self) -> Mapping[str, Any]:
        return self._keeper.holder()


def _folder() -> Path:
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return _safe(Path(chosen))
    common = common_folder()
    return Path(common) if common else _safe(_safe(Path(tempfile.gettempdir(), f"hetgpu-{os.geteuid()}")) / "leases")


def _safe(folder: Path) -> Path:
    """Return `folder`, made with mode 0700 if needed. Raise UsageError if other users can remove files in it."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        raise UsageError(f"{folder} cannot hold leases: {error.strerror}; {_ADVICE}") from error
    problem = None
    if not stat.S_ISDIR(found.st_mode):
        problem = "is a symbolic link" if stat.S_ISLNK(found.st_mode) else "is no folder"
    elif found.st_uid not in (0, os.geteuid()):
        problem = f"belongs to user id {found.st_uid}, not to you ({os.geteuid()})"
    elif found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        problem = f"can be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    if problem:
        raise UsageError(f"{folder} cannot hold leases: it {problem}; {_ADVICE}")
    return folder
