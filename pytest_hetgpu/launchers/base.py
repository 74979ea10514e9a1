"""How ranks start: rank contexts in, tokens out."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.model import Command, RankContext, Stack


@dataclass(frozen=True, slots=True)
class Start:
    """What a launcher is told. `mca` holds for all contexts; `root`: it runs as root; `cores`: those of its host."""

    stack: Stack
    contexts: Sequence[RankContext]
    mca: Mapping[str, str] = field(default_factory=dict)
    root: bool = False
    cores: int = 1


class Launcher(abc.ABC):
    """One way to start ranks."""

    @abc.abstractmethod
    def command(self, start: Start) -> Command:
        """The one command that starts every context. Pure: the same start gives the same tokens."""
