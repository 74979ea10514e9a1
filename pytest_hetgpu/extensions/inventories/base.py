"""The interface of inventory sources: hosts in a text, with their properties, and skipped entries.

A source is a pure parser of text. `commands` names the commands that print the text; the source does not run them.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pytest_hetgpu.model.old_spellings import Renamed, old_arguments

UNKNOWN_PLATFORM = "?"
"""Platform of a host that only its name and groups can decide.

Its accelerators have no known vendor, or the source lists machines of all kinds.
"""

MOST_HOSTS = 200_000


class MalformedInventory(ValueError):
    """A text in a wrong format; `line` counts from 1, None for the whole text."""

    def __init__(self, line: int | None, text: str) -> None:
        self.line = line
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class ListedHost:
    """A host in a source.

    Attributes:
        address: address for the other hosts.
        name: name in the source.
        line: line in the source.
        engine_host: address for this machine, if it differs.
        hardware: names of the matrix that the source itself gives, () if rules decide.
        groups: words that may name its hardware: partitions, features, an output's name.
        platform: "" if the source shows no accelerator.
        gpus: number of GPUs, None if not known.
        slots: ranks that it may take.

    """

    address: str
    name: str = ""
    line: int | None = None
    engine_host: str = ""
    user: str | None = None
    port: str | None = None
    key: str | None = None
    slots: int | None = None
    hardware: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    platform: str = ""
    arch: str = ""
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class SkippedEntry:
    """An entry that was left out, with the reason; never a secret value."""

    name: str
    why: str
    line: int | None = None


@old_arguments(found="hosts", left="skipped")
@dataclass(frozen=True, slots=True)
class HostListing:
    """The parsed hosts, in order. `secrets` are texts that the source marks as such; they are redacted."""

    hosts: tuple[ListedHost, ...] = ()
    skipped: tuple[SkippedEntry, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
    found = Renamed("hosts")
    left = Renamed("skipped")


class InventorySource(abc.ABC):
    """One kind of source. `title` is its name for users.

    `commands` print its text on this machine, and the first one that works counts. They are () if only a file can be
    read.
    """

    title: ClassVar[str]
    commands: ClassVar[Sequence[tuple[str, ...]]] = ()

    @classmethod
    @abc.abstractmethod
    def read(cls, text: str) -> HostListing:
        """Parse the hosts in a text. Raises MalformedInventory for a wrong format, and nothing else for any text."""


def number(text: str, most: int = 1_000_000) -> int | None:
    """Parse a whole number from 0 to `most` in plain digits, else return None."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) <= most else None
