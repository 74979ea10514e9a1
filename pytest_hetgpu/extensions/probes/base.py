"""What every probe says: what it wants to see of a node, and which facts it reads from that.

A probe asks for files and commands and reads the answer; it touches nothing itself. All probes of a node are asked in
one call of `remote/look.py`, whose answer is a `Seen`.
"""

from __future__ import annotations

import abc
import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pytest_hetgpu.model.facts import Fact, Facts, Value, absent, found, unknown


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """What a command on a node came to; `rc` is None where it did not end by itself, and `why` says what happened."""

    rc: int | None
    out: str = ""
    err: str = ""
    missing: bool = False
    why: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ended with return code 0."""
        return self.rc == 0

    @property
    def error(self) -> str:
        """Why it has no answer, in a few words."""
        telling = self.err.strip().splitlines()[-1:] or self.out.strip().splitlines()[:1]
        return self.why or (f"exit {self.rc}" + (f": {telling[0].strip()[:200]}" if telling else ""))


@dataclass(frozen=True, slots=True)
class NodePath:
    """A path on a node: where it leads, and what we may do there (letters of `rw`)."""

    real: str
    may: str = ""


@dataclass(frozen=True, slots=True)
class RawFacts:
    """What a node answered. Maps keep the order in which a loader would look; sizes are bytes."""

    system: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, NodePath] = field(default_factory=dict)
    space: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    strings: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    commands: Mapping[str, CommandOutput] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> RawFacts:
        """The answer of `remote/look.py`. Raises KeyError, TypeError or AttributeError for one of another shape."""
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
        """The first of these files that could be read, without blanks at its ends."""
        return next((self.files[path].strip() for path in paths if path in self.files), None)

    def texts(self, pattern: str) -> Iterator[tuple[re.Match[str], str]]:
        """Files whose whole path matches a regular expression, with their texts."""
        for path, text in self.files.items():
            match = re.fullmatch(pattern, path)
            if match:
                yield match, text.strip()

    def existing(self, pattern: str) -> tuple[str, ...]:
        """Paths that match a glob (`*` crosses slashes), as they were asked for."""
        return tuple(path for path in self.paths if fnmatch.fnmatchcase(path, pattern))

    def command(self, name: str) -> CommandOutput:
        """What a command came to; one that was not asked for, or found no file to work on, is missing."""
        return self.commands.get(name, CommandOutput(None, missing=True, why="not here"))

    def each(self, name: str) -> Iterator[tuple[str, CommandOutput]]:
        """The files that a command was run on, with what it came to."""
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


class Probe(abc.ABC):
    """One subject. Its class variables are what it asks `remote/look.py` for, in that program's words."""

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
    """Names of the facts it always gives, found or not."""

    @abc.abstractmethod
    def read(self, raw: RawFacts) -> Facts:
        """The facts of this subject, by name. Pure; every one of `promises` is among them."""


def first(pattern: str, text: str, flags: int = re.MULTILINE) -> str | None:
    """The first group of the first match, None without one."""
    match = re.search(pattern, text, flags)
    return match[1].strip() if match else None


def or_absent(value: Value | None, why: str = "") -> Fact:
    """Found where there is a value, absent where it is None or empty."""
    return found(value) if value else absent(why)


def or_unknown(value: Value | None, why: str) -> Fact:
    """Found where there is a value, unknown where it is None or empty."""
    return found(value) if value else unknown(why)
