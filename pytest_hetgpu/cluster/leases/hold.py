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
DEFAULT_TIMEOUT = 3600.0
NOTICE = 2.0
"""Seconds of waiting after which the wait is reported."""

ReportWait = Callable[[str], None]
"""A function that reports a wait: called with the host and its holder, and with "" at the end of the wait."""

_ADVICE = f"remove it, or set {FOLDER_VARIABLE} to a folder that only you can write to"


@dataclass(frozen=True, slots=True)
class HeldLeases:
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


def lease_requests(nodes: Iterable[Node]) -> tuple[LeaseRequest, ...]:
    """Return the leases that nodes need. The lock of a machine is on that machine, however it is reached.

    An engine over TLS cannot lock its host: the lease then excludes only runs of this machine. Nodes of a scheduler
    need no lease, as it gives them to one job at a time.
    """
    found = (runtime_of(node.hardware.runtime).lease(node) for node in nodes)
    return tuple(dict.fromkeys(one for one in found if one))


@contextmanager
def hold(
    leases: Iterable[LeaseRequest],
    *,
    cell: str = "",
    timeout: float | None = None,
    report_wait: ReportWait | None = None,
) -> Iterator[HeldLeases]:
    """Hold all of `leases` for a cell, and yield them. `report_wait` is called if that takes long.

    The wait for all of them takes at most `timeout` seconds (default: $HETGPU_LEASE_TIMEOUT, else an hour). Lock files
    of this machine are in $HETGPU_LEASES, else in a folder that all its users share. Calls must not be nested: a
    process that holds a host and requests it again waits for itself.

    Raise NotHere after a too long wait (it names the holder), or for an unusable lock file. Raise ProvisionError if a
    host is lost during the wait, and UsageError if other users could tamper with the folder.
    """
    limit = wait_limit(os.environ) if timeout is None else timeout
    with ExitStack() as stack:
        ordered = _ordered_locks(tuple(leases), _holder_fields(cell), stack)
        deadline = time.monotonic() + limit  # connecting to the hosts is no part of the wait
        for lease, one, _ in ordered:
            _wait_for(lease, one, deadline, report_wait)
        here = {one.words: why for _, one, why in ordered if why}
        yield HeldLeases(tuple(one.words for _, one, _ in ordered), here, tuple(lease for lease, _, _ in ordered))


def _wait_for(lease: _Lease, one: LeaseRequest, deadline: float, report_wait: ReportWait | None) -> None:
    """Wait for one lease. Raise NotHere with its holder if that takes too long."""
    started = time.monotonic()
    if lease.granted(min(NOTICE, deadline - started)):
        return
    if time.monotonic() < deadline and _granted_after_report(lease, one, deadline, report_wait):
        return
    waited = time.monotonic() - started
    raise NotHere(f"host {one.words!r} is busy: {describe_holder(lease.holder())} (waited {waited:.1f} s)")


def _granted_after_report(lease: _Lease, one: LeaseRequest, deadline: float, report_wait: ReportWait | None) -> bool:
    """Return whether a reported wait succeeds; report its end in any case."""
    if not report_wait:
        return lease.granted(deadline - time.monotonic())
    report_wait(f"waits for host {one.words}: {describe_holder(lease.holder())}")
    try:
        return lease.granted(deadline - time.monotonic())
    finally:
        report_wait("")


def lease_hosts(job: Job, report_wait: Callable[[Job, str], None] | None = None) -> AbstractContextManager[HeldLeases]:
    """Return `hold` for all hosts of a job."""
    return hold(
        lease_requests(job.all_nodes), cell=job.label, report_wait=partial(report_wait, job) if report_wait else None
    )


def close_connections() -> None:
    """Close the connections to locks on other hosts."""
    remote_locks.close()


def wait_limit(environ: Mapping[str, str]) -> float:
    """Return the seconds that a cell waits for its hosts. Raise UsageError if the setting is no such number."""
    text = environ.get(TIMEOUT_VARIABLE) or str(DEFAULT_TIMEOUT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        most = f"0 to {threading.TIMEOUT_MAX:.0f}, for example 3600"
        raise UsageError(f"{TIMEOUT_VARIABLE}={text} is no number of seconds that can be waited for ({most})")
    return seconds


def check_settings(environ: Mapping[str, str]) -> None:
    """Check the timeout and the folder for leases that the user has set. Raise UsageError."""
    wait_limit(environ)
    if environ.get(FOLDER_VARIABLE):
        _folder()


def describe_holder(who: Mapping[str, Any]) -> str:
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


def _holder_fields(cell: str) -> dict[str, Any]:
    owner = parse(tracker().label)
    return {
        "user": _user(),
        "machine": os.uname().nodename,
        "launcher": os.getpid(),
        "run": owner.run if owner else "",
        "cell": cell,
        "since": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
    }


def _ordered_locks(
    requests: tuple[LeaseRequest, ...], who: dict[str, Any], stack: ExitStack
) -> list[tuple[_Lease, LeaseRequest, str]]:
    """Return each lock once, ordered by identity. The order is the same for every process on every machine.

    With each, return the reason if its lock is on this machine and not on its own.
    """
    addresses = [(one.name, one.reach) for one in requests if one.reach is not None]
    remote = remote_locks.of(addresses) if addresses else {}
    leases: dict[str, tuple[_Lease, LeaseRequest, str]] = {}
    # A lock of this machine is taken directly, even if a remote address leads to it, too.
    for one in sorted(requests, key=lambda one: (one.reach is not None, one.name)):
        lock = remote[one.name, one.reach] if one.reach is not None else one.alone
        lease, why = (_RemoteLease(lock, who), "") if isinstance(lock, RemoteLock) else (_local_lock(one, who), lock)
        if lease.identity not in leases:
            leases[lease.identity] = (lease, one, why)
            stack.callback(lease.release)
        elif isinstance(lease, HostLock):
            lease.release()
    return [leases[identity] for identity in sorted(leases)]


def _local_lock(one: LeaseRequest, who: dict[str, Any]) -> HostLock:
    """Return the lock of this machine, or one here for a host that has no own lock."""
    try:
        return HostLock(str(_folder()), one.name if one.reach is None else f"host {one.name}", who)
    except LockFileError as error:
        advice = f"have it removed, or set {FOLDER_VARIABLE} to a folder that only you can write to"
        raise NotHere(f"host {one.words!r} cannot be held: {error}; {advice}") from error


class _RemoteLease:
    """A lease of a lock on another host."""

    def __init__(self, lock: RemoteLock, who: dict[str, Any]) -> None:
        self.identity = lock.identity
        self._lock = lock
        self._who = who
        self._requested = False

    @property
    def lost(self) -> bool:
        return self._lock.lost

    def granted(self, seconds: float | None) -> bool:
        if not self._requested:
            self._requested = True
            self._lock.ask(self._who)
        return self._lock.granted(seconds)

    def release(self) -> None:
        if self._requested:
            self._lock.free()

    def holder(self) -> Mapping[str, Any]:
        return self._lock.holder()


def _folder() -> Path:
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return _private(Path(chosen))
    common = common_folder()
    return (
        Path(common) if common else _private(_private(Path(tempfile.gettempdir(), f"hetgpu-{os.geteuid()}")) / "leases")
    )


def _private(folder: Path) -> Path:
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
