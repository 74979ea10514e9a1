"""Nodes that are processes of this machine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import LaunchError
from pytest_hetgpu.extensions.runtimes.agent.spawn_errors import NotStarted, empty, error, sink
from pytest_hetgpu.extensions.runtimes.base import (
    Deployment,
    NodeProvider,
    OnTimeout,
    RemoteNode,
    Runtime,
    TimeoutInfo,
    ignore,
    testinfra_host,
)
from pytest_hetgpu.extensions.runtimes.process.kernel import custody
from pytest_hetgpu.extensions.runtimes.process.ledger import OWNER_FILE, tracker
from pytest_hetgpu.extensions.runtimes.process.segments import Segments
from pytest_hetgpu.extensions.runtimes.process.tree import Tree
from pytest_hetgpu.model.credentials import without_credentials
from pytest_hetgpu.model.job import Command, Hardware, Node
from pytest_hetgpu.model.outcome import RunResult

_NETWORKS = Path("/sys/class/net")
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8  # linux/if.h

# Variables that make a process a rank of some MPI job, and the settings of the current interpreter. The user's own MPI
# settings (OMPI_MCA_*, PMIX_MCA_*, PRTE_MCA_*, *_ALLOW_RUN_AS_ROOT) stay.
_NOT_INHERITED = re.compile(
    r"""PMIX_(?!MCA_) | PMI2?_ | PRTE_(?!MCA_|ALLOW_) | (OMPI|PRTE)_MCA_(ess|orte_ess|prte_ess|initial_wdir|num_procs)
      | OMPI_(COMM_)?WORLD_ | OMPI_(ARGV|COMMAND|FILE_LOCATION|FIRST_RANKS|UNIVERSE_SIZE) | OMPI_(NUM_APP|APP)_CTX
      | MPI_LOCALN?RANK | HYDI_ | PYTHON | PYTEST_ | VIRTUAL_ENV | __PYVENV""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Local(Runtime):
    """A runtime for processes of this machine; `grace` is the seconds for a stopped launcher to clean up."""

    grace: float = 2.0

    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnTimeout = ignore) -> RunResult:
        """Implement `Runtime.run`. Stop all processes of the command with it, including those in other sessions.

        `survivors` are named `NAME (PID)`. `quiet` is the time since the last write to `output`.
        """
        with sink(output) as file, custody.held(), temporary() as own:
            segments = Segments()
            tree = Tree({**home(own), **inherited(os.environ), **own, **command.env}, os.urandom(8).hex())
            started, clock = time.time(), time.monotonic()
            ended, interrupted = False, None
            try:
                try:
                    _launch(tree, command, file)
                    ended = tree.wait(timeout)
                except KeyboardInterrupt as cut:
                    interrupted = str(cut.args[0]) if cut.args else "SIGINT"
                seconds = time.monotonic() - clock
                quiet = min(seconds, max(0.0, time.time() - os.fstat(file).st_mtime))
                if not ended and interrupted is None:
                    from pytest_hetgpu.extensions.runtimes.agent.look import looking_here

                    interrupted = _interrupted(overdue, TimeoutInfo(seconds, quiet, looking_here(tree.pids)))
            finally:
                returncode = tree.clear(self.grace)
                full = _full_places(own) if returncode != 0 else ()
                segments.clear()
            frameless = _read_cores(own, file, output) if returncode != 0 and interrupted is None else ""
        return RunResult(
            argv=command.argv,
            returncode=returncode,
            output=str(output),
            started=started,
            seconds=seconds,
            timed_out=not ended and interrupted is None,
            quiet=quiet,
            interrupted=interrupted,
            survivors=tuple(tree.survivors.values()),
            frameless=frameless,
            full=full,
        )

    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Implement `Runtime.absent`."""
        return tuple(path for path in paths if not Path(path).exists())

    def interfaces(self) -> tuple[str, ...]:
        """Implement `Runtime.interfaces`; return () if there is no /sys/class/net."""
        return interfaces_up(_NETWORKS)

    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Implement `Runtime.read`."""
        return {path: _content(path) for path in paths}

    def host(self) -> Any:
        """Implement `Runtime.host`."""
        return testinfra_host("local://")


class LocalNodes(NodeProvider):
    """The local machine as a node of a job with other nodes: commands run below an agent, as elsewhere."""

    @classmethod
    def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
        """Implement `NodeProvider.open`."""
        from pytest_hetgpu.extensions.runtimes.agent.link import AgentConnection, boot_command
        from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
        from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe

        name = node.name or node.host
        link = AgentConnection(ProcessPipe(boot_command(sys.executable), inherited(os.environ)), name)
        return AgentNode(name, link).settled(deployment)

    @classmethod
    def shares_host(cls, hardware: Hardware) -> bool:
        """Implement `Policy.shares_host`: all nodes are this machine."""
        return True

    @classmethod
    def exec_line(cls, node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
        """Implement `PlanLines.exec_line`."""
        return shlex.join(argv)

    @classmethod
    def copy_line(cls, node: Node, placement: str, source: str, target: str) -> str:
        """Implement `PlanLines.copy_line`."""
        return shlex.join(("cp", "-r", source, target))


def _interrupted(overdue: OnTimeout, what: TimeoutInfo) -> str | None:
    """Call `overdue` for a command whose time is over; return the signal that cut that short."""
    try:
        overdue(what)
    except KeyboardInterrupt as cut:
        return str(cut.args[0]) if cut.args else "SIGINT"
    return None


def _full_places(own: Mapping[str, str]) -> tuple[str, ...]:
    from pytest_hetgpu.extensions.runtimes.process import cores  # only failed runs need it

    return cores.full_places(own)


def _read_cores(own: Mapping[str, str], output: int, log: Path) -> str:
    """Append the core files of a failed job to its output; return why there are none."""
    from pytest_hetgpu.extensions.runtimes.process import cores

    return cores.report(own, output, log)


def _content(path: str) -> bytes | None:
    """Read a file with system calls alone: each cell reads eight small files of /proc and /sys."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    except OSError:
        return None
    finally:
        os.close(file)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that a command inherits.

    It lacks credentials, and variables that would make the command a rank of another job.
    """
    return {name: value for name, value in without_credentials(environ).items() if _is_inherited(name)}


@lru_cache(maxsize=4096)
def _is_inherited(name: str) -> bool:
    return not _NOT_INHERITED.match(name)


def home(own: Mapping[str, str]) -> dict[str, str]:
    """Return the HOME of a command if the environment has none: the user database's, else its temporary folder.

    Open MPI 5 does not start without one (`Unable to get the user home directory`).
    """
    found = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises without a home
    return {"HOME": found if os.path.isabs(found) else own.get("TMPDIR", os.sep)}  # noqa: PTH117 - as above


@contextmanager
def temporary() -> Iterator[dict[str, str]]:
    """Yield the variables that give a command its own temporary folder; none if the folder cannot be created.

    Killed launchers of Open MPI leave files named by their pids. The next launcher with the same pid fails on them.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="hetgpu-"))
    except OSError:
        yield {}
        return
    try:
        with suppress(OSError):
            (folder / OWNER_FILE).write_text(tracker().label)
        yield {"TMPDIR": str(folder), "HETGPU_CRASHES": str(folder / "crashes")}
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a command's folder, which is usually empty."""
    try:
        (folder / OWNER_FILE).unlink()
        folder.rmdir()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


def interfaces_up(networks: Path) -> tuple[str, ...]:
    """Return the interfaces below a `/sys/class/net` that are administratively up, loopback first; () without it."""
    flags = {entry.parent.name: int(entry.read_text(), 16) for entry in networks.glob("*/flags")}
    up = (name for name, flag in flags.items() if flag & _IFF_UP)
    return tuple(sorted(up, key=lambda name: (not flags[name] & _IFF_LOOPBACK, name)))


def _launch(tree: Tree, command: Command, file: int) -> None:
    if not command.argv:
        raise empty()
    _write_variables(command, tree.env)
    try:
        tree.launch(command.started, file)
    except OSError as failure:
        raise error(command.argv[0], _known(failure, command, tree.env)) from failure
    except ValueError as failure:  # a NUL byte, or a character that the file system's encoding lacks
        raise error(command.argv[0], NotStarted(None, str(failure), 0, found=False, path="")) from failure


def _write_variables(command: Command, env: Mapping[str, str]) -> None:
    """Write the variables of ranks to the temporary folder of the command, which is removed after it."""
    for name, content in command.files().items():
        path = Path(env.get("TMPDIR", ""), name)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(content)
        except OSError as failure:
            raise LaunchError(f"cannot write the variables of ranks to {path}: {failure.strerror}") from failure


def _known(failure: OSError, command: Command, env: Mapping[str, str]) -> NotStarted:
    path = env.get("PATH", "")
    size = sum(len(os.fsencode(text)) + 1 for text in (*command.started, *env, *env.values()))
    found = shutil.which(command.argv[0], path=path) is not None
    return NotStarted(failure.errno, failure.strerror or str(failure), size, found, path)
