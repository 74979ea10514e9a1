"""Facts about a node: found, absent or unknown; and the differences between nodes."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Value = str | tuple[str, ...]


class State(str, enum.Enum):
    """What is known of a fact: it is there, it is not, or it could not be told."""

    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing known of a node. `value` is a text, or several where there are several of the thing; None if not found.

    `why` says where a found value comes from where that is not plain, and otherwise what is missing.
    """

    state: State
    value: Value | None = None
    why: str = ""

    @property
    def text(self) -> str | None:
        """The value as one text, several joined by `, `; None where nothing was found."""
        return ", ".join(self.value) if isinstance(self.value, tuple) else self.value

    @property
    def items(self) -> tuple[str, ...]:
        """The value as several, one or none."""
        return self.value if isinstance(self.value, tuple) else () if self.value is None else (self.value,)


def found(value: Value, why: str = "") -> Fact:
    """The thing is there."""
    return Fact(State.FOUND, value, why)


def absent(why: str = "") -> Fact:
    """The thing is certainly not there."""
    return Fact(State.ABSENT, None, why)


def unknown(why: str) -> Fact:
    """It could not be determined whether the thing is there, or which it is."""
    return Fact(State.UNKNOWN, None, why)


Facts = dict[str, Fact]


CLOCK = "clock"
"""The fact that tells how many seconds a node's clock is ahead of ours."""


# Facts that differ between any two machines and tell nothing.
_PLACES = ("libraries", "mpi4py.library")


_OWN = ("rdma.", "nics", "cuda.devices", "rocm.devices", "large_bar.devices", "shm", "memory", "cxi", CLOCK)


@dataclass(frozen=True, slots=True)
class Environment:
    """What is known of one node, by the name of the fact (`ucx.enable_mt`), in the probes' order."""

    facts: Mapping[str, Fact] = field(default_factory=dict)

    def fact(self, name: str) -> Fact:
        """One fact; unknown where no probe spoke of it."""
        return self.facts.get(name, unknown("nothing was looked at"))

    def text(self, name: str) -> str | None:
        """A fact's value as one text, None where it was not found."""
        return self.fact(name).text

    def items(self, name: str) -> tuple[str, ...]:
        """A fact's values, none where it was not found."""
        return self.fact(name).items

    def is_absent(self, name: str) -> bool:
        """Whether the thing is certainly not there."""
        return self.fact(name).state is State.ABSENT


class SkewRow(NamedTuple):
    """One fact that nodes do not share: its value on each, `-` where the thing is absent, `?` where it is unknown."""

    fact: str
    values: tuple[str, ...]


def skew(environments: Mapping[str, Environment]) -> tuple[SkewRow, ...]:
    """What differs between nodes, in the probes' order, a value for each node in the map's order.

    What is not known differs from nothing. Left out is what no two machines share: devices by address, memory left.
    """
    every = dict.fromkeys(name for environment in environments.values() for name in environment.facts)
    rows = (
        _row(name, list(environments.values())) for name in every if not name.startswith(_OWN) and name not in _PLACES
    )
    return tuple(row for row in rows if len({value for value in row.values if value != "?"}) > 1)


def _row(name: str, environments: Sequence[Environment]) -> SkewRow:
    return SkewRow(name, tuple(display(environment.fact(name)) for environment in environments))


def display(fact: Fact) -> str:
    """A fact as a table has it: its value, `-` where the thing is absent, `?` where it is unknown."""
    if fact.state is State.UNKNOWN:
        return "?"
    return "-" if fact.state is State.ABSENT else fact.text or ""
