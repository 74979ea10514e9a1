"""How ranks start: rank contexts in, tokens out."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.model import Command, RankContext, Stack


@dataclass(frozen=True, slots=True)
class Start:
    """What a launcher is told. `stack` is the one that starts the ranks, which bring an interpreter of their own.

    `mca` holds for all contexts; `root`: it runs as root; `cores`: those of its host. `ssh_config` is the file by which
    it reaches the other hosts ("": there are none); `netdev` the interface its daemons are to use ("": their choice);
    `prefix` where the other hosts have the stack, if elsewhere than the starter; `shared`: some nodes are on one host.
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


class Launcher(abc.ABC):
    """One way to start ranks."""

    def unsuitable(self, stack: Stack, mca: Iterable[str]) -> str | None:
        """Why this launcher cannot start a stack's ranks with these MCA parameters, None when it can."""
        return None

    @abc.abstractmethod
    def command(self, start: Start) -> Command:
        """The one command that starts every context. Pure: the same start gives the same tokens."""
