"""The I/O boundary: everything that starts a process or reads facts of a node uses a `Runtime`."""

from __future__ import annotations

import abc
import errno
import importlib
import os
import secrets
import stat
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Leftovers
from pytest_hetgpu.extensions.runtimes.traits.plan_lines import PlanLines
from pytest_hetgpu.extensions.runtimes.traits.policy import Policy
from pytest_hetgpu.model.job import Command, Node
from pytest_hetgpu.model.old_spellings import KeepsOldNames, Renamed
from pytest_hetgpu.model.outcome import RunResult

T = TypeVar("T")

StackDumper = Callable[[Mapping[str, Any], float], bytes]
"""A function that runs `remote/dump_stacks.py` on a node for so many seconds; it returns b"" without an answer."""


@dataclass(frozen=True, slots=True)
class TimeoutInfo:
    """A command that still runs though its time is over."""

    #: Seconds since it was started.
    seconds: float
    #: Seconds since its last output.
    quiet: float
    look: StackDumper


OnTimeout = Callable[[TimeoutInfo], None]


def ignore(_: TimeoutInfo) -> None:
    """Do nothing about a command whose time is over."""


class Runtime(abc.ABC):
    """A location that runs commands. One object may run many, one after another or from several threads."""

    @abc.abstractmethod
    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnTimeout = ignore) -> RunResult:
        """Run `command` to its end, at most `timeout` seconds, and leave nothing of it running.

        It starts `command.started`, whose files of variables lie in its TMPDIR or were put on the nodes. A command that
        still runs then is stopped, after a call of `overdue`. Its stdout and stderr are appended to the
        file `output` (mode 0600). A command may fail, or be cut short by the timeout or by a KeyboardInterrupt. It then
        gives a RunResult like any other.

        Raises:
            LaunchError: It could not be started.

        """

    @abc.abstractmethod
    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Return those of `paths`, such as /dev/kfd, that do not exist on the node, in the order given."""

    @abc.abstractmethod
    def interfaces(self) -> tuple[str, ...]:
        """Return the names of the node's network interfaces that are up, loopback first, then by name."""

    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Return the content of files of the node, None for one that cannot be read. By default it reads none."""
        return dict.fromkeys(paths)

    @abc.abstractmethod
    def host(self) -> Any:
        """Return the node as a testinfra host object; NotHere if testinfra is not installed."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit status of a short command, as subprocess gives it, and its output."""

    returncode: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class SshServer:
    """An sshd that this package started on a node."""

    port: int
    #: The public half of its host key: `ssh-ed25519 AAAA...`.
    host_key: str
    #: The only user that can log in.
    user: str


@dataclass(frozen=True, slots=True)
class Walltime:
    """The time for which a scheduler has granted nodes."""

    #: Its start, by the monotonic clock.
    began: float
    seconds: float


class RemoteNode(KeepsOldNames, Runtime):
    """One node of a job over several hosts.

    The caller must close it; closing removes all files and processes of this package from the node. A method that needs
    the node raises LostNode once the node is out of reach.
    """

    #: A private folder (0700) on the node, which is removed by `close`.
    folder: str
    #: The user that commands run as.
    uid: int
    #: The host that a scheduler chose; "" if none did.
    allocated_host: str = ""
    #: Facts about how the node was provided, by name: how long that took, for example.
    provision_facts: Mapping[str, str] = {}
    #: : None if no scheduler takes the node back.
    walltime: Walltime | None = None

    given = Renamed("allocated_host")
    told = Renamed("provision_facts")
    term = Renamed("walltime")
    ask = Renamed("exec")
    open_door = Renamed("start_sshd")
    door_log = Renamed("sshd_log")

    @abc.abstractmethod
    def key(self) -> str:
        """Make a key pair in `folder` once; return the public key. The private one never leaves the node."""

    @abc.abstractmethod
    def exec(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0) -> CommandResult:
        """Run a short command and return its result.

        Raises:
            ProvisionError: It cannot be started, or takes over `timeout` seconds.

        """

    @abc.abstractmethod
    def put(self, files: Mapping[str, bytes]) -> None:
        """Write files (mode 0600) below `folder`, by relative paths."""

    @abc.abstractmethod
    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Return the content of files of the node, None for one that cannot be read."""

    @abc.abstractmethod
    def start_sshd(self, authorized_key: str, environment: Mapping[str, str]) -> SshServer:
        """Start an sshd for that public key alone, on a free port.

        Its sessions get the node's environment and this one. A PATH or LD_LIBRARY_PATH given here is put before the
        node's own.

        Raises:
            ProvisionError: There is no sshd or no ssh-keygen, or sshd refused to start.

        """

    @abc.abstractmethod
    def sshd_log(self) -> tuple[str, ...]:
        """Return the last lines that the job's sshd on the node printed: why it refused a login."""

    @abc.abstractmethod
    def sweep(self) -> tuple[str, ...]:
        """Stop the remaining processes of the last command on the node, except sshd; return them as `NAME (PID)`."""

    def stacks(self, request: Mapping[str, Any], seconds: float) -> bytes:
        """Dump stacks of the last command on this node, as `StackDumper`; by default there are none."""
        return b""

    @abc.abstractmethod
    def lost(self) -> str | None:
        """Return why the node is out of reach; None while it is not."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop all processes of this package on the node. Closing twice is fine; it never raises for a lost node."""


class Deployment:
    """The nodes of one placement while they exist: their shared objects, and the labels of all objects made for them.

    Args:
        name: The placement, in characters that engines take.
        run: The name of the run.
        owner: `USER@HOST:PID`.
        nodes: All nodes of the placement.
        telling: Called with the reason of a wait, and with "" at its end.

    Attributes:
        token: A random part of the names of its folders.

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
        """An event that is set once no cell needs the nodes any more; waiting threads then give up."""
        self._lock = threading.Lock()
        self._words = threading.Lock()

    def tell(self, what: str) -> None:
        """Report why the nodes wait, in words that follow the name of a cell; "" after the wait."""
        with self._words:
            self._telling(what)

    def once(self, key: Hashable, make: Callable[[ExitStack], T]) -> T:
        """Return the result of `make`, called for the first request; `close` unwinds its ExitStack."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make(self._closing)
            return cast(T, self._made[key])

    def close(self) -> None:
        """Undo everything that was made, last first."""
        with self._lock:
            self._made.clear()
            self._closing.close()


class Service(Protocol):
    """A service that makes nodes and may be restarted during a run: a container engine."""

    @property
    def restart(self) -> str:
        """Return how a user starts it again, as an order: `start its daemon (...)`."""

    @property
    def address(self) -> str:
        """Return its address in the form that users write."""

    @property
    def met(self) -> bool:
        """Return whether it has ever answered this process."""

    @property
    def breaks(self) -> int:
        """Return how often it has failed during this run."""

    def answers(self, patience: float) -> bool:
        """Return whether it answers within `patience` seconds."""


class NodeProvider(Policy, PlanLines, Leftovers, abc.ABC):
    """A runtime: a kind of node that a job over several hosts can have.

    The class of a runtime holds everything that is peculiar to it: settings and rules (`Policy`), and shell lines for
    the plan (`PlanLines`). It also holds locations for `hetgpu clean` (`Leftovers`), and the nodes themselves. Only
    `open` is abstract; the other methods have the answers for hosts that are reached by ssh.
    """

    @classmethod
    @abc.abstractmethod
    def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
        """Return the node, ready for commands; several threads may call this.

        Raises:
            NotHere: The site lacks something.
            ProvisionError: Something at the site is broken. Nothing stays behind.

        """

    @classmethod
    def services(cls, nodes: Sequence[Node]) -> tuple[Service, ...]:
        """Return the services that make these nodes and may be restarted during a run, each once; none by default."""
        return ()

    @classmethod
    def shut(cls) -> None:
        """Close the shared resources of this kind of node (connections to engines), after all nodes are closed."""
        return


def testinfra_host(spec: str, **options: str) -> Any:
    """Return `testinfra.get_host(spec, **options)`, e.g. `local://`; NotHere, with advice, if it is not installed."""
    try:
        testinfra = importlib.import_module("testinfra")
    except ImportError as error:
        raise NotHere(f"testinfra cannot be imported ({error}): pip install pytest-testinfra") from error
    return testinfra.get_host(spec, **options)


def key_trouble(key: str | None) -> str:
    """Return why ssh would not use the key that the inventory names; "" for a good one, or none."""
    if key is None:
        return ""
    try:
        file = os.open(key, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        found = os.fstat(file)
        os.close(file)
    except OSError as error:
        why = "no such file" if error.errno == errno.ENOENT else (error.strerror or str(error)).lower()
        return f"key {_shown(key)} of the inventory: {why}"
    if not stat.S_ISREG(found.st_mode):
        why = "is a directory" if stat.S_ISDIR(found.st_mode) else "is not a file"
        return f"key {_shown(key)} of the inventory: {why}"
    readable = found.st_uid == os.geteuid() and found.st_mode & 0o077
    if readable and not key.endswith(".pub"):  # a public key is valid: it names a private key in the ssh agent
        return f"key {_shown(key)} of the inventory: others may read it, so ssh does not use it: chmod 600"
    return ""


def _shown(path: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises without a home
    return f"~{path[len(home) :]}" if path.startswith(f"{home.rstrip('/')}/") else path
