"""How ranks start: rank contexts in, tokens out."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pytest_hetgpu.model.job import Command, RankContext, Stack


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where ranks of torch.distributed find each other: a name of the first node that all nodes know, and a port."""

    address: str = "127.0.0.1"
    port: int = 29500


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What a launcher is told. `stack` is the one that starts the ranks, which bring an interpreter of their own.

    `mca` holds for all contexts; `root`: it runs as root; `cores`: those of its host. `ssh_config` is the file by which
    it reaches the other hosts ("": there are none); `netdev` the interface its daemons are to use ("": their choice);
    `prefix` where the other hosts have the stack, if elsewhere than the starter; `shared`: some nodes are on one host.
    `programs` is the folder of our programs on the starter; `meeting` is where ranks of torch.distributed meet.
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


class Launcher(abc.ABC):
    """One way to start ranks. `apart`: each node is started by itself, and its ranks need not be consecutive."""

    per_node: ClassVar[bool] = False

    def unsuitable(self, stack: Stack, mca: Iterable[str], backend: str = "") -> str | None:
        """Why this launcher cannot start a stack's ranks with these MCA parameters, None when it can.

        `backend` is that of torch.distributed, "" for ranks that call MPI.
        """
        return None

    def environment(self, meeting: Rendezvous) -> Mapping[str, str]:
        """Variables by which ranks of torch.distributed find each other, where this launcher does not tell them."""
        return {"MASTER_ADDR": meeting.address, "MASTER_PORT": str(meeting.port)}

    @abc.abstractmethod
    def command(self, start: LaunchRequest) -> Command:
        """The one command that starts every context. Pure: the same start gives the same tokens."""
