"""How ranks reach each other: a family renders settings for a node, and reads from a log what was really used."""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pytest_hetgpu.interfaces import Choice
from pytest_hetgpu.model import Node, Stack
from pytest_hetgpu.registry import find, names, show

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
"""One, or several with commas between; launchers hand it to a shell on the other nodes."""
Some = Annotated[list[str], Field(min_length=1)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words, json_schema_input_type=str | Some)]


class TransportSettings(BaseModel):
    """Keys that a transport of this family takes in a matrix."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


@dataclass(frozen=True, slots=True)
class Rendering:
    """What a transport asks of a node: MCA parameters and environment."""

    mca: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


class ProofReader(Protocol):
    """Fed with a log's lines (those that may matter: they hold one of `triggers`), says what carried the data."""

    @property
    def triggers(self) -> tuple[bytes, ...]:
        """Fixed parts of the lines it wants."""

    def feed(self, line: str, number: int) -> None:
        """Take one line; `number` counts from 1."""

    @property
    def transports(self) -> tuple[str, ...]:
        """Components seen between ranks, as `LAYER/TRANSPORT` (`ob1/tcp`, `ucx/posix`, `ofi/tcp`), sorted."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions that libraries said of themselves, by lower-case name."""


class Transport(abc.ABC):
    """One family. A layered family runs over another transport of the matrix, named by its key `over`."""

    Settings: ClassVar[type[TransportSettings]] = TransportSettings
    layered: ClassVar[bool] = False
    backend: ClassVar[str] = ""
    """The backend of torch.distributed that this is; "" for what MPI uses."""
    vendors: ClassVar[tuple[str, ...]]
    """The MPIs that have it."""

    def __init__(self, settings: TransportSettings, lower: Transport | None = None) -> None:
        self.settings = settings
        self.lower = lower

    def unsuitable(self, stack: Stack) -> str | None:
        """Why a stack cannot run this transport, None when it can."""
        if stack.vendor in self.vendors:
            return None
        families: list[type[Transport]] = [find("transports", name, Transport) for name in names("transports")]  # type: ignore[type-abstract]
        suited = ", ".join(
            sorted(_name(family) for family in families if stack.vendor in family.vendors and not family.backend)
        )
        return f"{stack.vendor} has no {_name(type(self))} (known: {suited or 'none'})"

    @abc.abstractmethod
    def render(self, node: Node, stack: Stack) -> Rendering:
        """Settings that make this node's ranks use the transport and say so in their output."""

    @property
    def pin(self) -> str:
        """The variable or MCA parameter that names its interface; "" for a family that pins none."""
        return ""

    def interface(self, node: Node) -> Choice | None:
        """The interface that `render` pins on a node, with the reason; None if its data needs none."""
        return None

    def unreachable(self, node: Node, stack: Stack) -> str | None:
        """Why ranks of this node cannot reach each other by this transport, None if they can."""
        return None

    def verbose(self, stack: Stack) -> Rendering:
        """What to add to `render`'s settings so that the log is the one that the library's maintainers ask for.

        Nothing where a family does not say.
        """
        return Rendering()

    @abc.abstractmethod
    def components(self) -> tuple[str, ...]:
        """Globs over component names that may carry data between ranks; anything else is a silent fallback."""

    @staticmethod
    @abc.abstractmethod
    def reader() -> ProofReader:
        """A fresh reader of this family's proof of use."""


def _name(family: type[Transport]) -> str:
    return family.__module__.rpartition(".")[2]
