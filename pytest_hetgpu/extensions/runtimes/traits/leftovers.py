"""A runtime's places where killed runs leave things: how they are written down, looked at and cleared."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pytest_hetgpu.model.job import Reach


@dataclass(frozen=True, slots=True)
class Spot:
    """A place where something may be: `kind` is processes (of this machine), host, or a runtime's own (`spot_kind`).

    `host`, `reach` and `environ` are all that is needed to get there once this process is gone.
    """

    kind: str
    host: str = ""
    reach: Reach = field(default_factory=Reach)
    environ: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Leftover:
    """A thing at a place: `owner` is its label's text, `created` in seconds since 1970, None if that is not known.

    `ident` is what it is removed by. `going`: it was removed already, and the place only takes its time.
    """

    kind: str
    name: str
    ident: str
    owner: str
    created: float | None = None
    going: bool = False


class Location(abc.ABC):
    """A spot that can be looked at; `words` are for people. Errors are HetgpuErrors.

    `within`: names there are one thing's only within it; "" if they are so everywhere.
    """

    words: str
    within: str = ""

    @abc.abstractmethod
    def labelled(self) -> list[Leftover]:
        """Return all that carries a label of ours there."""

    @abc.abstractmethod
    def take(self, found: Sequence[Leftover]) -> None:
        """Remove things; one that is gone already is fine."""


class Leftovers:
    """The places of a runtime. By default there are none: what is started on hosts ends with the agent."""

    spot_kind: ClassVar[str] = ""
    """The kind of its spots; "" for a runtime without any."""

    @classmethod
    def location(cls, spot: Spot) -> Location:
        """Return where a spot of its kind leads; ProvisionError for one that leads nowhere."""
        raise NotImplementedError(spot.kind)

    @classmethod
    def spot(cls, reach: Reach, environ: Mapping[str, str]) -> Spot | None:
        """Return the spot of the service that makes nodes of a host; None if none does."""
        return None

    @classmethod
    def usual_spot(cls, environ: Mapping[str, str]) -> Spot | None:
        """Return the spot of the service of this machine, if it seems to have one."""
        return None
