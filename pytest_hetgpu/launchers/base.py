"""How ranks start: rank contexts in, tokens out."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.model import Command, RankContext, Stack


@dataclass(frozen=True, slots=True)
class Start:
    """What a launcher is told. `stack` is the one that starts the ranks, which bring an interpreter of their own.

    `mca` holds for all contexts; `root`: it runs as root; `cores`: those of its host.
    """

    stack: Stack
    contexts: Sequence[RankContext]
    mca: Mapping[str, str] = field(default_factory=dict)
    root: bool = False
    cores: int = 1


class Launcher(abc.ABC):
    """One way to start ranks."""

    def unsuitable(self, stack: Stack, mca: Iterable[str]) -> str | None:
        """Why this launcher cannot start a stack's ranks with these MCA parameters, None when it can."""
        return None

    @abc.abstractmethod
    def command(self, start: Start) -> Command:
        """The one command that starts every context. Pure: the same start gives the same tokens."""
