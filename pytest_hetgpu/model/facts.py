"""Facts about a node: found, absent or unknown; and the differences between nodes."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Value = str | tuple[str, ...]


class FactState(str, enum.Enum):
    """The state of a fact: found, absent, or not determinable."""

    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact about a node.

    Attributes:
        value: a text, or several texts for several things; None if not found.
        why: source of a found value if it is not obvious, otherwise the reason.

    """

    state: FactState
    value: Value | None = None
    why: str = ""

    @property
    def text(self) -> str | None:
        """Return the value as one text, several joined by `, `; None if nothing was found."""
        return ", ".join(self.value) if isinstance(self.value, tuple) else self.value

    @property
    def items(self) -> tuple[str, ...]:
        """Return the value as a tuple, empty if nothing was found."""
        return self.value if isinstance(self.value, tuple) else () if self.value is None else (self.value,)


def found(value: Value, why: str = "") -> Fact:
    """Make the fact that the thing exists."""
    return Fact(FactState.FOUND, value, why)


def absent(why: str = "") -> Fact:
    """Make the fact that the thing certainly does not exist."""
    return Fact(FactState.ABSENT, None, why)


def unknown(why: str) -> Fact:
    """Make the fact that existence or value could not be determined."""
    return Fact(FactState.UNKNOWN, None, why)


Facts = dict[str, Fact]


CLOCK = "clock"
"""Fact with the seconds that a node's clock is ahead of ours."""


# Facts that differ between any two machines, without meaning.
_PLACES = ("libraries", "mpi4py.library")


_OWN = ("rdma.", "nics", "cuda.devices", "rocm.devices", "large_bar.devices", "shm", "memory", "cxi", CLOCK)


@dataclass(frozen=True, slots=True)
class Environment:
    """The facts about one node by name (`ucx.enable_mt`), in the probes' order."""

    facts: Mapping[str, Fact] = field(default_factory=dict)

    def fact(self, name: str) -> Fact:
        """Return one fact; an unknown one if no probe gave it."""
        return self.facts.get(name, unknown("nothing was looked at"))

    def text(self, name: str) -> str | None:
        """Return a fact's value as one text, None if it was not found."""
        return self.fact(name).text

    def items(self, name: str) -> tuple[str, ...]:
        """Return a fact's values, none if it was not found."""
        return self.fact(name).items

    def is_absent(self, name: str) -> bool:
        """Return whether the thing certainly does not exist."""
        return self.fact(name).state is FactState.ABSENT


class SkewRow(NamedTuple):
    """A fact that differs between nodes: its value per node, `-` for absent, `?` for unknown."""

    fact: str
    values: tuple[str, ...]


def skew(environments: Mapping[str, Environment]) -> tuple[SkewRow, ...]:
    """Return the facts that differ between nodes, in the probes' order, with one value per node in the map's order.

    An unknown fact differs from nothing. Facts that no two machines share are left out: device addresses, free memory.
    """
    every = dict.fromkeys(name for environment in environments.values() for name in environment.facts)
    rows = (
        _row(name, list(environments.values())) for name in every if not name.startswith(_OWN) and name not in _PLACES
    )
    return tuple(row for row in rows if len({value for value in row.values if value != "?"}) > 1)


def _row(name: str, environments: Sequence[Environment]) -> SkewRow:
    return SkewRow(name, tuple(display(environment.fact(name)) for environment in environments))


def display(fact: Fact) -> str:
    """Format a fact for a table: its value, `-` for absent, `?` for unknown."""
    if fact.state is FactState.UNKNOWN:
        return "?"
    return "-" if fact.state is FactState.ABSENT else fact.text or ""
