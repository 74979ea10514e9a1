"""A runtime's shell lines for `--hetgpu-plan`: its nodes made, used and removed by hand. Pure.

The lines of a placement begin with `allocate` and `prepare`. A folder and the rank programs for each node follow
(`exec_line`, `copy_line`), and an sshd if there are several nodes. The command (`start_line`), `remove` and `release`
come last.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import ClassVar

from pytest_hetgpu.model.job import Command, Job, Node


def words_of(command: Command) -> tuple[str, ...]:
    """Return a command with its variables: `env NAME=VALUE ... program`."""
    variables = tuple(f"{name}={value}" for name, value in sorted(command.env.items()))
    return ("env", *variables, *command.argv) if variables else command.argv


class PlanLines:
    """The shell lines of a runtime. `nodes` are a job's nodes of this runtime; `placement` names created objects."""

    client: ClassVar[str] = "ssh"
    """The program that the lines need."""
    build_note: ClassVar[str] = ""
    """A line about images that are built, for users who run the lines on another machine."""
    foreground_sshd: ClassVar[bool] = False
    """A process that a line leaves in the background ends with that line: an sshd stays in the foreground."""

    @classmethod
    def allocate(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Yield the lines that request nodes: before they succeed there is nothing to remove."""
        yield from ()

    @classmethod
    def prepare(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Yield the lines after which commands can run on the nodes."""
        yield from cls.create(job, nodes, placement)

    @classmethod
    def create(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Yield the lines of `prepare` that show how the nodes are made."""
        yield from ()

    @classmethod
    def exec_line(cls, node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
        """Return the line that runs tokens on a node; `stdin`: they read the stdin of the line."""
        # ssh passes its words to the login shell there, which splits them again.
        return shlex.join((*_ssh(node), shlex.join(argv)))

    @classmethod
    def copy_line(cls, node: Node, placement: str, source: str, target: str) -> str:
        """Return the line that copies a folder of this machine to `target` on a node, which must not exist yet."""
        above, _, name = source.rpartition("/")
        packed = shlex.join(("tar", "-C", above or ".", "-c", name))
        folder, _, wanted = target.rpartition("/")
        line = f"{packed} | {cls.exec_line(node, placement, 'tar', '-C', folder, '-x', stdin=True)}"
        # tar unpacks the folder under its own name.
        return (
            line if name == wanted else f"{line} && {cls.exec_line(node, placement, 'mv', f'{folder}/{name}', target)}"
        )

    @classmethod
    def start_line(cls, job: Job, command: Command, placement: str) -> str:
        """Return the line that starts a job's command, on a node of this runtime."""
        return cls.exec_line(job.launch_node, placement, *words_of(command))

    @classmethod
    def alternatives(cls, job: Job, nodes: Sequence[Node], programs: str) -> Iterator[str]:
        """Yield other ways to start the job, each after a line that describes it."""
        yield from ()

    @classmethod
    def remove(cls, job: Job, nodes: Sequence[Node], placement: str, folder: str) -> Iterator[str]:
        """Yield the lines that remove nodes, or all created objects on them; `folder` is the run's folder on each."""
        for node in nodes:
            yield cls.exec_line(node, placement, "pkill", "-f", f"{folder}/host_key")
            yield cls.exec_line(node, placement, "rm", "-r", folder)

    @classmethod
    def release(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Yield the lines that remove the shared objects of the nodes, after everything else was removed."""
        yield from ()

    @classmethod
    def sshd_user(cls, node: Node) -> str:
        """Return the user of the job's sshd on a node; "" for the user that commands run as."""
        return node.reach.user or ""

    @classmethod
    def before_sshd(cls, node: Node) -> str:
        """Return shell words to put before the start of sshd."""
        return "mkdir -p /run/sshd; " if cls.sshd_user(node) == "root" else ""

    @classmethod
    def address_expression(cls, node: Node, placement: str) -> str:
        """Return shell words for the address of a node whose host is unknown before the node exists; else ""."""
        return ""


def _ssh(node: Node) -> tuple[str, ...]:
    reach = node.reach
    port = ("-p", str(reach.port)) if reach.port else ()
    key = ("-i", reach.key) if reach.key else ()
    return ("ssh", *port, *key, f"{reach.user}@{node.host}" if reach.user else node.host)
