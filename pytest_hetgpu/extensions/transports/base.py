"""The interface of transports: settings of a family for a node, and the parser of its log."""

from __future__ import annotations

import abc
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Node, Stack
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.old_spellings import KeepsOldNames, Renamed
from pytest_hetgpu.model.transport_classes import (
    NO_CARRIER,
    Connection,
    OneSided,
    RequiredClass,
    TransportMember,
    required_class,
)

_WORD = re.compile(r"[A-Za-z0-9_.:/+-]+")
_INTERFACES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+~,-]*")


def _word(value: Any) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise ValueError(f"{show(value)} is not one name")
    return value


def _words(value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"a name or a list of names is needed here, not {show(value)}")
    seen: dict[str, None] = {}
    for word in listed:
        if not isinstance(word, str) or not _WORD.fullmatch(word):
            raise ValueError(f"{show(word)} is not one name; write several as a list: [tcp, self]")
        if word in seen:
            raise ValueError(f"{show(word)} is listed twice")
        seen[word] = None
    return tuple(seen)


def _interfaces(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and _INTERFACES.fullmatch(value)):
        raise ValueError(f"{show(value)} is no interface's name (letters, digits and _ . : / @ + ~ -)")
    return value


Word = Annotated[str, BeforeValidator(_word, json_schema_input_type=str)]
Interfaces = Annotated[str | None, BeforeValidator(_interfaces, json_schema_input_type=str | None)]
"""One interface, or several separated by commas. Launchers pass it to a shell on the other nodes."""
Some = Annotated[list[str], Field(min_length=1)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words, json_schema_input_type=str | Some)]


class TransportSettings(BaseModel):
    """Keys that a transport of this family takes in a matrix.

    `carried_by: any` lets every member of its list carry the data alone; absent, the best class must carry some.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    carried_by: Literal["any"] | None = None


@dataclass(frozen=True, slots=True)
class Rendering:
    """The settings of a transport on a node: MCA parameters and environment."""

    mca: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


class TransportParser(Protocol):
    """A parser of log lines that contain one of `triggers`; it finds the carriers of data."""

    @property
    def triggers(self) -> tuple[bytes, ...]:
        """Return the fixed parts of the required lines."""

    def feed(self, line: str, number: int) -> None:
        """Take one line; `number` counts from 1."""

    @property
    def transports(self) -> tuple[str, ...]:
        """Return components seen between ranks, as `LAYER/TRANSPORT` (`ob1/tcp`, `ucx/posix`, `ofi/tcp`), sorted."""

    @property
    def connections(self) -> Collection[Connection]:
        """Return the same components by path and by kind of connection."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Return the versions that libraries logged, by lower-case name."""


class Transport(KeepsOldNames, abc.ABC):
    """One family. A layered family runs over another transport of the matrix, named by its key `over`."""

    Settings: ClassVar[type[TransportSettings]] = TransportSettings
    layered: ClassVar[bool] = False
    backend: ClassVar[str] = ""
    """Its backend of torch.distributed; "" for a transport of MPI."""
    vendors: ClassVar[tuple[str, ...]]
    """MPIs that support it."""

    duties = Renamed("required_classes")
    lenient = Renamed("any_may_carry")
    pin = Renamed("interface_setting")
    reader = Renamed("parser")
    rival = Renamed("exclusion_setting")

    def __init__(self, settings: TransportSettings, lower: Transport | None = None) -> None:
        self.settings = settings
        self.lower = lower

    def unsuitable(self, stack: Stack) -> str | None:
        """Return why a stack cannot run this transport, None if it can."""
        if stack.vendor in self.vendors:
            return None
        families: list[type[Transport]] = [find("transports", name, Transport) for name in names("transports")]  # type: ignore[type-abstract]
        suited = ", ".join(
            sorted(_name(family) for family in families if stack.vendor in family.vendors and not family.backend)
        )
        return f"{stack.vendor} has no {_name(type(self))} (known: {suited or 'none'})"

    @abc.abstractmethod
    def render(self, node: Node, stack: Stack) -> Rendering:
        """Return settings that make this node's ranks use the transport and log it."""

    def one_sided(self, stack: Stack, benchmark: bool) -> tuple[Rendering, OneSided] | None:
        """Return the settings that pin and log MPI windows, with the components that may carry them.

        `pinned` in it holds if these settings are in force. None if the transport does not pin windows.
        `benchmark`: the program uses windows and nothing else.
        """
        return None

    @property
    def interface_setting(self) -> str:
        """Return the variable or MCA parameter that names its interface; "" for a family that pins none."""
        return ""

    @property
    def exclusion_setting(self) -> str:
        """Return the parameter that excludes interfaces, "" for none; the MPI refuses it beside `interface_setting`."""
        return ""

    def interface(self, node: Node) -> InterfaceChoice | None:
        """Return the interface that `render` pins on a node, with the reason; None if its data needs none."""
        return None

    def unreachable(self, node: Node, stack: Stack) -> str | None:
        """Return why ranks of this node cannot reach each other by this transport, None if they can."""
        return None

    def verbose(self, stack: Stack) -> Rendering:
        """Return the settings, besides `render`'s, for the log that the library's maintainers require."""
        return Rendering()

    @abc.abstractmethod
    def components(self) -> tuple[str, ...]:
        """Return globs of components that may carry data between ranks. Another component is a silent fallback."""

    def members(self) -> tuple[TransportMember, ...]:
        """Return the entries of its list with their classes; () for a family whose list has only one class.

        The best class that fits a path must carry data there.
        """
        return ()

    def required_classes(self, paths: Iterable[str]) -> dict[str, RequiredClass]:
        """Return the class that must carry the data, by path; nothing for `carried_by: any`."""
        if self.any_may_carry:
            return {}
        found = {path: required_class(self.members(), path) for path in paths}
        return {path: one for path, one in found.items() if one}

    @property
    def any_may_carry(self) -> bool:
        """Return whether any member of its list may carry the data; the transport that it runs over decides, too."""
        return bool(self.settings.carried_by) or (self.lower is not None and self.lower.any_may_carry)

    @staticmethod
    @abc.abstractmethod
    def parser() -> TransportParser:
        """Return a fresh parser of this family's log."""


def unclassified(members: Sequence[TransportMember]) -> str | None:
    """Return why the best member of a list is undefined: a member's class is not known. None if it is defined."""
    carriers = [member for member in members if member.kind != NO_CARRIER]
    unknown = next((member.name for member in carriers if not member.kind), None)
    if unknown is None or len(carriers) < 2:
        return None
    return (
        f"the class of {show(unknown)} is not known (RDMA, shared memory, tcp), so the best of "
        f"{', '.join(member.name for member in carriers)} cannot be determined: add `carried_by: any`, or list it alone"
    )


def _name(family: type[Transport]) -> str:
    return family.__module__.rpartition(".")[2]
