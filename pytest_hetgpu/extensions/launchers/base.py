"""The interface of launchers: rank contexts in, tokens out."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pytest_hetgpu.model.job import Command, RankContext, Stack
from pytest_hetgpu.model.old_spellings import KeepsOldNames, Renamed


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The meeting point of ranks of torch.distributed: a node by a name that all nodes resolve, a port, its index."""

    address: str = "127.0.0.1"
    port: int = 29500
    index: int = 0


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The input of a launcher.

    Attributes:
        stack: stack that starts the ranks; they have interpreters of their own.
        mca: parameters of all contexts.
        root: the launcher runs as root.
        cores: cores of its host.
        ssh_config: file for ssh to the other hosts, "" if there are none.
        netdev: interface of its daemons, "" for their choice.
        prefix: prefix of the stack on the other hosts, if it differs.
        shared: some nodes are on one host.
        programs: folder of our programs on the launch node.
        rendezvous: meeting point of ranks of torch.distributed.
        labelled: each line of output has a label with its rank.

    """

    stack: Stack
    contexts: Sequence[RankContext]
    mca: Mapping[str, str] = field(default_factory=dict)
    root: bool = False
    cores: int = 1
    ssh_config: str = ""
    netdev: str = ""
    prefix: str = ""
    shared: bool = False
    programs: str = ""
    rendezvous: Rendezvous = Rendezvous()
    labelled: bool = False
    meeting = Renamed("rendezvous")


class Launcher(KeepsOldNames, abc.ABC):
    """One way to start ranks. `per_node`: each node starts on its own, and its ranks may not be consecutive.

    `needs_ssh`: it reaches the other nodes by `LaunchRequest.ssh_config`. `processes` are the names of its own
    processes beside the ranks, on the launch node and on the others.
    """

    per_node: ClassVar[bool] = False
    needs_ssh: ClassVar[bool] = True
    processes: ClassVar[frozenset[str]] = frozenset()
    apart = Renamed("per_node")

    def unsuitable(self, stack: Stack, mca: Iterable[str], backend: str = "") -> str | None:
        """Return why this launcher cannot start a stack's ranks with these MCA parameters, None if it can.

        `backend` is that of torch.distributed, "" for ranks that call MPI.
        """
        return None

    def labels(self, stack: Stack) -> str:
        """Return the form of the labels in output that is `labelled`, a name of `analysis/logs/output.py`.

        "" means that it puts no labels, so that the ranks share one output.
        """
        return ""

    def environment(self, meeting: Rendezvous) -> Mapping[str, str]:
        """Return variables for the rendezvous of torch.distributed, unless the launcher sets them itself."""
        return {"MASTER_ADDR": meeting.address, "MASTER_PORT": str(meeting.port)}

    @abc.abstractmethod
    def command(self, start: LaunchRequest) -> Command:
        """Return the one command that starts every context. Pure: the same request gives the same tokens."""
