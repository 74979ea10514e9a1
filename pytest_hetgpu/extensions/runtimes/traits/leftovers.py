"""The locations at which killed runs of a runtime leave objects: how they are recorded, listed and cleared."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pytest_hetgpu.model.job import ConnectionInfo


@dataclass(frozen=True, slots=True)
class Location:
    """A location at which objects of a run may be left.

    A ledger records it, so it holds all that is needed to get there after this process has ended.
    """

    #: `processes` (of this machine), `host`, or the `location_kind` of a runtime.
    kind: str
    #: : The host, or another value of the runtime.
    host: str = ""
    reach: ConnectionInfo = field(default_factory=ConnectionInfo)
    environ: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Leftover:
    """An object that carries a label of this project."""

    #: `container`, `network`, `pod`, ...
    kind: str
    name: str
    #: The identifier that the runtime removes it by.
    ident: str
    #: The text of its label.
    owner: str
    #: Seconds since 1970, None if that is not known.
    created: float | None = None
    #: : Its removal has begun, but takes some time.
    going: bool = False


class LeftoverStore(abc.ABC):
    """The objects at one location. Errors are HetgpuErrors."""

    #: The location, for people.
    words: str
    #: Names are unique only within this; "" if they are unique everywhere.
    within: str = ""

    @abc.abstractmethod
    def list(self) -> list[Leftover]:
        """Return all objects that carry a label of this project."""

    @abc.abstractmethod
    def remove(self, found: Sequence[Leftover]) -> None:
        """Remove objects; ignore those that are already removed."""


class Leftovers:
    """The locations of a runtime. There are none by default: processes on hosts end with the agent."""

    location_kind: ClassVar[str] = ""
    """The `kind` of its locations; "" for a runtime without any."""

    @classmethod
    def leftovers(cls, location: Location) -> LeftoverStore:
        """Return the objects at a location of its kind.

        Raises:
            ProvisionError: The location cannot be used.

        """
        raise NotImplementedError(location.kind)

    @classmethod
    def location_of(cls, reach: ConnectionInfo, environ: Mapping[str, str]) -> Location | None:
        """Return the location of the service that makes nodes of a host; None if there is no service."""
        return None

    @classmethod
    def default_location(cls, environ: Mapping[str, str]) -> Location | None:
        """Return the location of this machine's service; None if there seems to be none."""
        return None
