"""What a source of hosts gives: the hosts that it names, what it says they are, and what it had to leave out.

A source is a pure reader of text. Running what prints the text is not its business: `commands` only says what to run.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

UNKNOWN_PLATFORM = "?"
"""The platform of a host that nothing but its name and groups may decide.

It has accelerators, and the source does not tell whose; or the source names machines of all sorts.
"""

MOST_HOSTS = 200_000


class MalformedInventory(ValueError):
    """Text that is not what the source should be; `line` counts from 1, None where all of it is meant."""

    def __init__(self, line: int | None, text: str) -> None:
        self.line = line
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class ListedHost:
    """A host. `address` is what the other hosts call it, `name` what the source does, `line` where it says so.

    `engine_host` is where this machine reaches it, if elsewhere. `hardware` are names of the matrix that the
    source itself gives it, () where that is left to rules. `groups` are words that may name its hardware
    (partitions, features, an output's name). `platform` is "" where the source tells of no accelerator; `gpus` is
    their number, None where it is not told. `slots` are ranks it may take.
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
    """What was left out, and why; never a value that is secret."""

    name: str
    why: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class HostListing:
    """All that a source gave, each in its order. `secrets` are texts that it marks as such; they are redacted."""

    found: tuple[ListedHost, ...] = ()
    left: tuple[SkippedEntry, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)


class InventorySource(abc.ABC):
    """One kind of source. `title` is what a person calls it.

    `commands` print its text on this machine, the first that can; () where only a file can be read.
    """

    title: ClassVar[str]
    commands: ClassVar[Sequence[tuple[str, ...]]] = ()

    @classmethod
    @abc.abstractmethod
    def read(cls, text: str) -> HostListing:
        """The hosts in a text. Malformed, with its line, for what cannot be one; nothing else, whatever it holds."""


def number(text: str, most: int = 1_000_000) -> int | None:
    """A whole number from 0 to `most` in plain digits, else None."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) <= most else None
