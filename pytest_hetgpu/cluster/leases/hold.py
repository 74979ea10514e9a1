"""Holding hosts: all of a job's at once, in an order that is the same for everybody, so that nobody waits for ever."""

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
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pytest_hetgpu.cluster.cleanup.owner import parse
from pytest_hetgpu.cluster.leases.claims import HOST, Claim, Refused, common_folder
from pytest_hetgpu.cluster.leases.keeper import Keeper, keepers
from pytest_hetgpu.errors import NotHere, ProvisionError, UsageError
from pytest_hetgpu.extensions.runtimes._docker.address import address
from pytest_hetgpu.extensions.runtimes.process.ledger import books
from pytest_hetgpu.model.job import ConnectionInfo, Job, Node
from pytest_hetgpu.model.slurm import SCHEDULERS

FOLDER_VARIABLE = "HETGPU_LEASES"
TIMEOUT_VARIABLE = "HETGPU_LEASE_TIMEOUT"
USUAL_TIMEOUT = 3600.0
NOTICE = 2.0
"""Seconds of waiting after which somebody is told of it."""

Waits = Callable[[str], None]
"""Is told what is waited for, and who holds it; "" once that is over."""

_UNREACHED = "its engine is reached over TLS, which gives no way to a lock there"
_ADVICE = f"remove it, or set {FOLDER_VARIABLE} to a folder that only you can write to"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One lease: of a machine reached by ssh where `reach` is there, else of a name on this machine.

    `words` name it for people.
    """

    name: str
    words: str
    reach: ConnectionInfo | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """What is held: its words, in the order taken. `here` are hosts held for this machine's runs alone, and why."""

    words: tuple[str, ...]
    here: Mapping[str, str]
    _leases: tuple[_Lease, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        """Of what somebody else may have by now: the way to a host that holds a lease for us broke."""
        return tuple(words for words, lease in zip(self.words, self._leases, strict=True) if lease.lost)


class _Lease(Protocol):
    identity: str

    @property
    def lost(self) -> bool: ...

    def granted(self, seconds: float | None) -> bool: ...
    def release(self) -> None: ...
    def holder(self) -> Mapping[str, Any]: ...


def wanted(nodes: Iterable[Node]) -> tuple[Wanted, ...]:
    """The leases that nodes need. A machine has one name, its own, however it is reached: the lock lies on itself.

    An engine over TLS gives no way to a lock of its host; there only who starts jobs here is kept out. Nodes that a
    scheduler gives need none: it lends them to nobody else.
    """
    return tuple(dict.fromkeys(_wanted(node) for node in nodes if node.hardware.runtime not in SCHEDULERS))


def _wanted(node: Node) -> Wanted:
    if node.hardware.runtime == "ssh":
        return Wanted(node.host, node.host, ConnectionInfo("", node.reach.user, node.reach.port, node.reach.key))
    if node.hardware.runtime != "docker":
        return Wanted(HOST, node.host)
    try:
        at = address(node.name, node.reach, os.environ)
    except ProvisionError:
        return Wanted(HOST, node.host)  # making the node will say what is the matter
    if at.by_ssh:
        return Wanted(at.host, node.host, at.reach)
    return Wanted(HOST, node.host) if at.local else Wanted(at.url, at.where)


@contextmanager
def hold(
    leases: Iterable[Wanted], *, cell: str = "", timeout: float | None = None, waits: Waits | None = None
) -> Iterator[Holding]:
    """Holds all of `leases` for a cell, and yields what is held. `waits` is told where that takes its time.

    Waits at most `timeout` seconds for all of them together ($HETGPU_LEASE_TIMEOUT, else an hour), then raises NotHere,
    which names the holder; NotHere also where a lock file is not what it should be. Leases of this machine lie in
    $HETGPU_LEASES, else where all its users share them; UsageError if others could tamper with that folder.
    ProvisionError where a host is lost while it is waited for. Not to be nested: whoever holds a host and asks for it
    again waits for itself.
    """
    limit = patience(os.environ) if timeout is None else timeout
    with ExitStack() as held:
        ordered = _in_order(tuple(leases), _who(cell), held)
        deadline = time.monotonic() + limit  # reaching the hosts is not waiting for them
        for lease, one, _ in ordered:
            _take(lease, one, deadline, waits)
        here = {one.words: why for _, one, why in ordered if why}
        yield Holding(tuple(one.words for _, one, _ in ordered), here, tuple(lease for lease, _, _ in ordered))


def _take(lease: _Lease, one: Wanted, deadline: float, waits: Waits | None) -> None:
    """Waits for one lease; NotHere names its holder where that takes too long."""
    started = time.monotonic()
    if lease.granted(min(NOTICE, deadline - started)):
        return
    if time.monotonic() < deadline and _granted_late(lease, one, deadline, waits):
        return
    waited = time.monotonic() - started
    raise NotHere(f"host {one.words!r} is busy: {told(lease.holder())} (waited {waited:.1f} s)")


def _granted_late(lease: _Lease, one: Wanted, deadline: float, waits: Waits | None) -> bool:
    """Whether a wait that is told of ends well; that it is over is told however it ends."""
    if not waits:
        return lease.granted(deadline - time.monotonic())
    waits(f"waits for host {one.words}: {told(lease.holder())}")
    try:
        return lease.granted(deadline - time.monotonic())
    finally:
        waits("")


def held(job: Job, waits: Callable[[Job, str], None] | None = None) -> AbstractContextManager[Holding]:
    """`hold` of all that a job's nodes are on."""
    return hold(wanted(job.all_nodes), cell=job.label, waits=partial(waits, job) if waits else None)


def shut() -> None:
    """Lets go of the ways to other hosts."""
    keepers.close()


def patience(environ: Mapping[str, str]) -> float:
    """Seconds that a cell waits for its hosts. UsageError for what is no number of seconds."""
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
    """UsageError where leases cannot be taken as the user wants it: with that patience, in that folder."""
    patience(environ)
    if environ.get(FOLDER_VARIABLE):
        _folder()


def told(who: Mapping[str, Any]) -> str:
    """Who holds a lease, in words: `ada@node7 holds it for cell x of run y since 12:00:07, process 4711`."""

    def text(key: str) -> str:
        """Another user may have written it."""
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


def _who(cell: str) -> dict[str, Any]:
    owner = parse(books().label)
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        user = f"user {os.geteuid()}"
    return {
        "user": user,
        "machine": os.uname().nodename,
        "launcher": os.getpid(),
        "run": owner.run if owner else "",
        "cell": cell,
        "since": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
    }


def _in_order(wanted: tuple[Wanted, ...], who: dict[str, Any], held: ExitStack) -> list[tuple[_Lease, Wanted, str]]:
    """Each lock once, in the order of their identities, which is the same whoever asks and from wherever.

    With each comes why it lies here, and not on the machine that it is of, if so.
    """
    asked = [(one.name, one.reach) for one in wanted if one.reach is not None]
    kept = keepers.of(asked) if asked else {}
    leases: dict[str, tuple[_Lease, Wanted, str]] = {}
    # What lies here is taken here, though it may be reached from afar, too.
    for one in sorted(wanted, key=lambda one: (one.reach is not None, one.name)):
        why_here = "" if one.name == HOST else _UNREACHED
        keeper = kept[one.name, one.reach] if one.reach is not None else why_here
        lease, why = (_Afar(keeper, who), "") if isinstance(keeper, Keeper) else (_here(one, who), keeper)
        if lease.identity not in leases:
            leases[lease.identity] = (lease, one, why)
            held.callback(lease.release)
        elif isinstance(lease, Claim):
            lease.release()
    return [leases[identity] for identity in sorted(leases)]


def _here(one: Wanted, who: dict[str, Any]) -> Claim:
    """Of this machine, or of a name here where a host has no lock of its own."""
    try:
        return Claim(str(_folder()), one.name if one.reach is None else f"host {one.name}", who)
    except Refused as error:
        advice = f"have it removed, or set {FOLDER_VARIABLE} to a folder that only you can write to"
        raise NotHere(f"host {one.words!r} cannot be held: {error}; {advice}") from error


class _Afar:
    """A claim that a keeper holds."""

    def __init__(self, keeper: Keeper, who: dict[str, Any]) -> None:
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
    """`folder`, made with mode 0700 if need be. UsageError unless nobody else can remove our files in it."""
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
