"""The border to the world: everything that starts a process or looks at a node goes through a `Runtime`."""

from __future__ import annotations

import abc
import errno
import importlib
import os
import secrets
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.job import Command, Node
from pytest_hetgpu.model.outcome import RunResult

T = TypeVar("T")

Look = Callable[[Mapping[str, Any], float], bytes]
"""Asks `remote/dump_stacks.py` on a node, where it has so many seconds; b"" where there is no answer."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A command whose time is over, and which still runs: since when, how long silent, and how to look at it."""

    seconds: float
    quiet: float
    look: Look


OnOverdue = Callable[[Overdue], None]


def shrug(_: Overdue) -> None:
    """Does nothing about a command whose time is over."""


class Runtime(abc.ABC):
    """Where nodes run. One object may serve many commands, one after another or from several threads."""

    @abc.abstractmethod
    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnOverdue = shrug) -> RunResult:
        """Run `command` to its end, at most `timeout` seconds, and leave nothing of it running.

        A command that runs at the end of its time is stopped after `overdue` was called.

        What it prints, stdout and stderr as they come, is appended to the file `output` (made with mode 0600).
        A command that fails, is cut short by the timeout or by a KeyboardInterrupt is a RunResult like any other;
        raises LaunchError if it could not be started at all.
        """

    @abc.abstractmethod
    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Those of `paths` (say /dev/kfd) that do not exist on the node, in the order given."""

    @abc.abstractmethod
    def interfaces(self) -> tuple[str, ...]:
        """Names of the node's network interfaces that are up, loopback first, then by name."""

    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """What these files of the node hold, None where one cannot be read. Here: nothing."""
        return dict.fromkeys(paths)

    @abc.abstractmethod
    def host(self) -> Any:
        """The node as a testinfra host object; raises NotHere where testinfra is not installed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a short command said; `returncode` as subprocess gives it."""

    returncode: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Door:
    """An sshd of ours on a node: where it listens, the host key it showed (`ssh-ed25519 AAAA...`), whom it lets in."""

    port: int
    host_key: str
    user: str


@dataclass(frozen=True, slots=True)
class Term:
    """The time that something is lent for: from `began`, by the monotonic clock, so many `seconds`."""

    began: float
    seconds: float


class Member(Runtime):
    """One node of a job over several hosts. It must be closed; closing leaves nothing of ours on the node.

    `folder` is a private folder (0700) on the node, which is gone with it; `uid` the user that commands run as. What
    needs the node raises LostNode once it is out of reach.
    """

    folder: str
    uid: int
    given: str = ""
    """The host that a scheduler gave, where one chose it."""
    told: Mapping[str, str] = {}
    """What is known of how the node was had (say how long that took), by names of facts."""
    term: Term | None = None
    """How long a scheduler has lent the node; None where nobody takes it back."""

    @abc.abstractmethod
    def key(self) -> str:
        """Makes a key pair in `folder` (once); the public key. The private one, `FOLDER/key`, never leaves the node."""

    @abc.abstractmethod
    def ask(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0) -> Answer:
        """What a short command answers. ProvisionError where it cannot be started, or takes over `timeout` seconds."""

    @abc.abstractmethod
    def put(self, files: Mapping[str, bytes]) -> None:
        """Writes files (mode 0600) below `folder`, by relative paths."""

    @abc.abstractmethod
    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """What these files of the node hold, None where one cannot be read."""

    @abc.abstractmethod
    def open_door(self, authorized_key: str, environment: Mapping[str, str]) -> Door:
        """Starts an sshd for that public key alone, on a free port; its sessions get the node's and this environment.

        A PATH or LD_LIBRARY_PATH given here stands before the node's own. ProvisionError says what is the matter: no
        sshd, no ssh-keygen, or what sshd complained of.
        """

    @abc.abstractmethod
    def door_log(self) -> tuple[str, ...]:
        """The last lines that our sshd on the node printed: why it did not let somebody in."""

    @abc.abstractmethod
    def sweep(self) -> tuple[str, ...]:
        """Stops whatever of the last command still runs on the node (not our sshd); what that was, as `NAME (PID)`."""

    def stacks(self, request: Mapping[str, Any], seconds: float) -> bytes:
        """As `Look`, at what the last command has on this node. Here: no answer."""
        return b""

    @abc.abstractmethod
    def lost(self) -> str | None:
        """Why the node is out of reach; None while it is not."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stops everything of ours on the node. Closing twice is fine; never raises for a node that is lost."""


class Gathering:
    """What the nodes of one placement share while they are there, and the labels they carry.

    `name` has only characters that engines take, `token` is part of the names of its folders; `run` is the run's name,
    `owner` says who made it (`USER@HOST:PID`); `nodes` are all of them. `telling` is told what takes its time.
    """

    def __init__(
        self, name: str, run: str, owner: str, nodes: Sequence[Node] = (), telling: Callable[[str], object] = len
    ) -> None:
        self.name = name
        self._telling = telling
        self.nodes = tuple(nodes)
        self.token = secrets.token_hex(4)
        self.labels = {"hetgpu.run": run, "hetgpu.owner": owner, "hetgpu.placement": name}
        self._made: dict[Hashable, object] = {}
        self._closing = ExitStack()
        self.abandoned = threading.Event()
        """Set once nobody wants it any more: who still waits for something gives up."""
        self._lock = threading.Lock()
        self._words = threading.Lock()

    def tell(self, what: str) -> None:
        """Tell what the nodes wait for, in words that go on from a cell's name; "" once that is over."""
        with self._words:
            self._telling(what)

    def once(self, key: Hashable, make: Callable[[ExitStack], T]) -> T:
        """What `make` gives, made for the first that asks; what it pushes on its ExitStack is undone by `close`."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make(self._closing)
            return cast(T, self._made[key])

    def close(self) -> None:
        """Undoes what was made, last first."""
        with self._lock:
            self._made.clear()
            self._closing.close()


class Service(Protocol):
    """Something that makes nodes and may be restarted under a run: a container engine."""

    @property
    def address(self) -> str:
        """Where it is, as its users write it."""

    @property
    def met(self) -> bool:
        """Whether it has ever answered this process."""

    @property
    def breaks(self) -> int:
        """How often it went away under us so far."""

    def answers(self, patience: float) -> bool:
        """Return whether it answers within `patience` seconds."""


class MemberRuntime(abc.ABC):
    """A kind of node that a job over several hosts can have: docker, ssh."""

    @classmethod
    @abc.abstractmethod
    def open(cls, node: Node, gathering: Gathering) -> Member:
        """The node, ready for commands; called from several threads.

        NotHere where the site lacks what it needs, ProvisionError where it should work and does not; then nothing stays
        behind.
        """

    @classmethod
    def services(cls, nodes: Sequence[Node]) -> tuple[Service, ...]:  # noqa: ARG003 - for who has any
        """What makes these nodes and may be restarted under a run, each once. Here: nothing."""
        return ()

    @classmethod
    def shut(cls) -> None:
        """Lets go of what serves all nodes of this kind (connections to engines). Nothing is open any more."""
        return


def testinfra_host(spec: str, **options: str) -> Any:
    """`testinfra.get_host(spec, **options)`, e.g. `local://`; NotHere, saying how to get it, where that is missing."""
    try:
        testinfra = importlib.import_module("testinfra")
    except ImportError as error:
        raise NotHere(f"testinfra cannot be imported ({error}): pip install pytest-testinfra") from error
    return testinfra.get_host(spec, **options)


def key_trouble(key: str | None) -> str:
    """Why ssh would not use the key that the inventory names, told before it is started; "" for a good one, or none."""
    if key is None:
        return ""
    try:
        with Path(key).open("rb") as file:
            found = os.fstat(file.fileno())
    except OSError as error:
        why = "no such file" if error.errno == errno.ENOENT else (error.strerror or str(error)).lower()
        return f"key {_shown(key)} of the inventory: {why}"
    readable = found.st_uid == os.geteuid() and found.st_mode & 0o077
    if readable and not key.endswith(".pub"):  # a public key stands for one that the agent holds
        return f"key {_shown(key)} of the inventory: others may read it, so ssh does not use it: chmod 600"
    return ""


def _shown(path: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
    return f"~{path[len(home) :]}" if path.startswith(f"{home.rstrip('/')}/") else path
