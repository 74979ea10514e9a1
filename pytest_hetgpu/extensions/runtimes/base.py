"""The border to the world: everything that starts a process or looks at a node goes through a `Runtime`."""

from __future__ import annotations

import abc
import errno
import importlib
import os
import secrets
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Leftovers
from pytest_hetgpu.extensions.runtimes.traits.plan_lines import PlanLines
from pytest_hetgpu.extensions.runtimes.traits.policy import Loss, Policy
from pytest_hetgpu.model.job import Command, Hardware, Node
from pytest_hetgpu.model.outcome import RunResult
from pytest_hetgpu.model.stored import Stored

FAKE = "fake"
"""The runtime for tests, which has no nodes of a job."""

T = TypeVar("T")

StackDumper = Callable[[Mapping[str, Any], float], bytes]
"""Asks `remote/stacks.py` on a node, where it has so many seconds; b"" where there is no answer."""


@dataclass(frozen=True, slots=True)
class TimeoutInfo:
    """A command whose time is over, and which still runs: since when, how long silent, and how to look at it."""

    seconds: float
    quiet: float
    look: StackDumper


OnTimeout = Callable[[TimeoutInfo], None]


def ignore(_: TimeoutInfo) -> None:
    """Does nothing about a command whose time is over."""


class Runtime(abc.ABC):
    """Where nodes run. One object may serve many commands, one after another or from several threads."""

    @abc.abstractmethod
    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnTimeout = ignore) -> RunResult:
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
class CommandResult:
    """What a short command said; `returncode` as subprocess gives it."""

    returncode: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class SshServer:
    """An sshd of ours on a node: where it listens, the host key it showed (`ssh-ed25519 AAAA...`), whom it lets in."""

    port: int
    host_key: str
    user: str


@dataclass(frozen=True, slots=True)
class Walltime:
    """The time that something is lent for: from `began`, by the monotonic clock, so many `seconds`."""

    began: float
    seconds: float


class RemoteNode(Runtime):
    """One node of a job over several hosts. It must be closed; closing leaves nothing of ours on the node.

    `folder` is a private folder (0700) on the node, which is gone with it; `uid` the user that commands run as. What
    needs the node raises LostNode once it is out of reach.
    """

    folder: str
    uid: int
    allocated_host: str = ""
    """The host that a scheduler gave, where one chose it."""
    provision_facts: Mapping[str, str] = {}
    """What is known of how the node was had (say how long that took), by names of facts."""
    walltime: Walltime | None = None
    """How long a scheduler has lent the node; None where nobody takes it back."""

    @abc.abstractmethod
    def key(self) -> str:
        """Makes a key pair in `folder` (once); the public key. The private one, `FOLDER/key`, never leaves the node."""

    @abc.abstractmethod
    def exec(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0) -> CommandResult:
        """What a short command answers. ProvisionError where it cannot be started, or takes over `timeout` seconds."""

    @abc.abstractmethod
    def put(self, files: Mapping[str, bytes]) -> None:
        """Writes files (mode 0600) below `folder`, by relative paths."""

    @abc.abstractmethod
    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """What these files of the node hold, None where one cannot be read."""

    @abc.abstractmethod
    def start_sshd(self, authorized_key: str, environment: Mapping[str, str]) -> SshServer:
        """Starts an sshd for that public key alone, on a free port; its sessions get the node's and this environment.

        A PATH or LD_LIBRARY_PATH given here stands before the node's own. ProvisionError says what is the matter: no
        sshd, no ssh-keygen, or what sshd complained of.
        """

    @abc.abstractmethod
    def sshd_log(self) -> tuple[str, ...]:
        """The last lines that our sshd on the node printed: why it did not let somebody in."""

    @abc.abstractmethod
    def sweep(self) -> tuple[str, ...]:
        """Stops whatever of the last command still runs on the node (not our sshd); what that was, as `NAME (PID)`."""

    def stacks(self, request: Mapping[str, Any], seconds: float) -> bytes:
        """As `StackDumper`, at what the last command has on this node. Here: no answer."""
        return b""

    @abc.abstractmethod
    def lost(self) -> str | None:
        """Why the node is out of reach; None while it is not."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stops everything of ours on the node. Closing twice is fine; never raises for a node that is lost."""


class Deployment:
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
    def restart(self) -> str:
        """How it is started again, as an order to whoever may: `start its daemon (...)`."""

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


class NodeProvider(Policy, PlanLines, Leftovers, abc.ABC):
    """A kind of node that a job over several hosts can have.

    All that is peculiar to a runtime is here: its settings and rules (`Policy`), its shell lines for the plan
    (`PlanLines`), the places that `hetgpu clean` looks at (`Leftovers`), and its nodes. Only `open` has to be written:
    all else is answered as for hosts that are reached by ssh.
    """

    @classmethod
    @abc.abstractmethod
    def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
        """The node, ready for commands; called from several threads.

        NotHere where the site lacks what it needs, ProvisionError where it should work and does not; then nothing stays
        behind.
        """

    @classmethod
    def services(cls, nodes: Sequence[Node]) -> tuple[Service, ...]:
        """What makes these nodes and may be restarted under a run, each once. Here: nothing."""
        return ()

    @classmethod
    def shut(cls) -> None:
        """Lets go of what serves all nodes of this kind (connections to engines). Nothing is open any more."""
        return


def runtime_of(name: str) -> type[NodeProvider]:
    """Return the class of a runtime; the base class for one that is not installed, as a stored job may name."""
    if name not in names("runtimes") or name == FAKE:
        return NodeProvider
    return find("runtimes", name, NodeProvider)  # type: ignore[type-abstract]


def runtimes() -> Iterator[tuple[str, type[NodeProvider]]]:
    """Return every runtime that can be imported, with its name."""
    for name in names("runtimes"):
        with suppress(UsageError):
            yield name, runtime_of(name)


def restored(node: Node) -> Node:
    """Return a node of a job that was read from a run's folder with settings of its runtime's own class."""
    hardware = node.hardware
    if not isinstance(hardware.settings, Stored):
        return node
    return replace(node, hardware=replace(hardware, settings=runtime_of(hardware.runtime).settings_of(hardware)))


def by_runtime(nodes: Sequence[Node]) -> Iterator[tuple[type[NodeProvider], list[Node]]]:
    """Return each runtime that nodes are of, in their order, with its nodes."""
    for name in dict.fromkeys(node.hardware.runtime for node in nodes):
        yield runtime_of(name), [node for node in nodes if node.hardware.runtime == name]


def conflict(kinds: Sequence[Hardware], *, launcher: bool = False) -> str:
    """Return why a runtime cannot make its nodes of a placement together; `launcher`: the last one has no ranks."""
    for name in dict.fromkeys(kind.runtime for kind in kinds):
        theirs = [kind for kind in kinds if kind.runtime == name]
        if why := runtime_of(name).conflict(theirs, launcher=launcher and kinds[-1].runtime == name):
            return why
    return ""


def loss_of(key: str) -> Loss | None:
    """Return the loss that a signature's key (`WHAT@RUNTIME`) stands for; None for any other key."""
    name = key.rpartition("@")[2]
    return runtime_of(name).losses.get(key) if name in names("runtimes") else None


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
