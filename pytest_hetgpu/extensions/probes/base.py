"""The interface of probes: the files and commands to collect from a node, and the facts to read from them.

A probe only reads collected data. One call of `remote/gather_facts.py` collects the data of all probes of a node;
`RawFacts` holds its answer.
"""

from __future__ import annotations

import abc
import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pytest_hetgpu.model.facts import Fact, Facts, Value, absent, found, unknown
from pytest_hetgpu.model.old_spellings import KeepsOldNames, Renamed


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output of a command on a node. `rc` is None if it did not exit by itself; `why` is the reason."""

    rc: int | None
    out: str = ""
    err: str = ""
    missing: bool = False
    why: str = ""
    trouble = Renamed("error")

    @property
    def ok(self) -> bool:
        """Return whether it ended with return code 0."""
        return self.rc == 0

    @property
    def error(self) -> str:
        """Return the reason why it has no answer, in a few words."""
        telling = self.err.strip().splitlines()[-1:] or self.out.strip().splitlines()[:1]
        return self.why or (f"exit {self.rc}" + (f": {telling[0].strip()[:200]}" if telling else ""))


@dataclass(frozen=True, slots=True)
class NodePath:
    """A path on a node: its resolved target, and our permissions (letters of `rw`)."""

    real: str
    may: str = ""


@dataclass(frozen=True, slots=True)
class RawFacts:
    """The collected data of a node. Maps keep the loader's search order; sizes are bytes."""

    system: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, NodePath] = field(default_factory=dict)
    space: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    strings: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    commands: Mapping[str, CommandOutput] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    ran = Renamed("command")
    there = Renamed("existing")

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> RawFacts:
        """Convert the answer of `remote/gather_facts.py`.

        Raises KeyError, TypeError or AttributeError for another shape.
        """
        return cls(
            system=dict(answer.get("system", {})),
            files=dict(answer.get("files", {})),
            unread=dict(answer.get("unread", {})),
            paths={path: NodePath(str(one["real"]), str(one["may"])) for path, one in answer.get("paths", {}).items()},
            space=dict(answer.get("space", {})),
            strings=dict(answer.get("strings", {})),
            commands={name: _ran(one) for name, one in answer.get("commands", {}).items()},
            env=dict(answer.get("env", {})),
        )

    def text(self, *paths: str) -> str | None:
        """Return the stripped text of the first readable one of these files."""
        return next((self.files[path].strip() for path in paths if path in self.files), None)

    def texts(self, pattern: str) -> Iterator[tuple[re.Match[str], str]]:
        """Yield the files whose whole path matches a regular expression, with their texts."""
        for path, text in self.files.items():
            match = re.fullmatch(pattern, path)
            if match:
                yield match, text.strip()

    def existing(self, pattern: str) -> tuple[str, ...]:
        """Return the existing paths that match a glob (`*` crosses slashes), in the order of the request."""
        return tuple(path for path in self.paths if fnmatch.fnmatchcase(path, pattern))

    def command(self, name: str) -> CommandOutput:
        """Return the output of a command. A command that was not requested, or had no file to work on, is missing."""
        return self.commands.get(name, CommandOutput(None, missing=True, why="not here"))

    def each(self, name: str) -> Iterator[tuple[str, CommandOutput]]:
        """Yield the files that a command was applied to, with its output."""
        for key, result in self.commands.items():
            which, _, path = key.partition(" ")
            if which == name and path:
                yield path, result


def _ran(one: Mapping[str, Any]) -> CommandOutput:
    if one.get("missing"):
        return CommandOutput(None, missing=True, why="no such program")
    if one.get("timeout"):
        return CommandOutput(None, why="took too long")
    if "failed" in one:
        return CommandOutput(None, why=str(one["failed"]))
    return CommandOutput(int(one["rc"]), str(one["out"]), str(one["err"]))


class Probe(KeepsOldNames, abc.ABC):
    """A probe of one subject. Its class variables are the request to `remote/gather_facts.py`, in its terms."""

    title: ClassVar[str]
    files: ClassVar[tuple[str | tuple[str, int], ...]] = ()
    skip: ClassVar[tuple[str, ...]] = ()
    paths: ClassVar[tuple[str, ...]] = ()
    space: ClassVar[tuple[str, ...]] = ()
    strings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    commands: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    each: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    env: ClassVar[tuple[str, ...]] = ()
    provides: ClassVar[tuple[str, ...]]
    """Names of the facts that it always returns, found or not."""
    promises = Renamed("provides")

    @abc.abstractmethod
    def read(self, raw: RawFacts) -> Facts:
        """Return the facts of this subject by name, with every name of `provides`. Pure."""


def first(pattern: str, text: str, flags: int = re.MULTILINE) -> str | None:
    """Return the first group of the first match, None without one."""
    match = re.search(pattern, text, flags)
    return match[1].strip() if match else None


def or_absent(value: Value | None, why: str = "") -> Fact:
    """Return a found fact for a value, an absent one for None or an empty value."""
    return found(value) if value else absent(why)


def or_unknown(value: Value | None, why: str) -> Fact:
    """Return a found fact for a value, an unknown one for None or an empty value."""
    return found(value) if value else unknown(why)
