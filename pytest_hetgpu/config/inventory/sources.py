"""An inventory out of what a site has already: `KIND:PATH`, or `from: {KIND: PATH, ...}` in a YAML inventory.

The kinds are the files of `inventories/`, which read text; here that text is fetched, and its hosts get a name of
hardware where the user says it.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, create_model, model_validator

from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.hardware import Prefix
from pytest_hetgpu.config.matrix.models import Form, Name, Names, Shape
from pytest_hetgpu.errors import InventoryError, NotHere, UsageError
from pytest_hetgpu.extensions.inventories.base import (
    UNKNOWN_PLATFORM,
    InventorySource,
    ListedHost,
    MalformedInventory,
    SkippedEntry,
)
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.model.job import Hardware
from pytest_hetgpu.model.messages import known, show

MOST_BYTES = 256_000_000
STDIN = "-"
_SPEC = re.compile(r"([A-Za-z][A-Za-z0-9_.+-]*):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spec:
    """One source: a kind by its name in `inventories/`; `path` is a file, STDIN, or None to ask this machine."""

    kind: str
    path: str | None

    def __str__(self) -> str:
        return f"{self.kind}:{self.path or ''}"

    @property
    def is_file(self) -> bool:
        """Whether its text is in a file that can be read again."""
        return self.path not in (None, STDIN)


@dataclass(frozen=True, slots=True)
class SourcedHost:
    """A host that a source found. `hardware` are names that the user gave it; None where it is to be found by rules."""

    found: ListedHost
    hardware: tuple[str, ...] | None = None

    def fits(self, wanted: Hardware) -> bool:
        """Whether the host is of that hardware: as said, else by its groups, its name, or its platform and arch."""
        if self.hardware is not None:
            return wanted.name in self.hardware
        if wanted.name in self.found.groups or re.fullmatch(rf"{re.escape(wanted.name)}[-_.]?[0-9]*", self.found.name):
            return True
        platform, arch = self.found.platform or "cpu", self.found.arch
        same = platform == wanted.accelerator.platform
        return same and (not arch or not wanted.accelerator.arch or arch == wanted.accelerator.arch)


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one source came to, for doctor: its claims in their order, what was left out, what it calls secret."""

    spec: Spec
    title: str
    claims: tuple[SourcedHost, ...] = ()
    left: tuple[SkippedEntry, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)


def spec_of(text: str) -> Spec | None:
    """The source that `KIND:PATH` means; None where it is a file, of ours. UsageError for a kind that there is not."""
    match = _SPEC.fullmatch(text)
    if not match or os.path.exists(text):  # noqa: PTH110 - Path.exists raises for a name too long
        return None
    kind, path = match.groups()
    if kind not in names("inventories"):
        raise UsageError(f"{text}: unknown kind of inventory {show(kind)} {known(kind, names('inventories'))}")
    return Spec(kind, path or None)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _patterns(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# What ssh takes as a user: never an option.
User = Annotated[str, Form(r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?$", "be a user's name")]
Port = Annotated[int, Field(ge=1, le=65535)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(_patterns, json_schema_input_type=str | list[str])]


class _Common(Shape):
    """What may be said of a source besides where it is: defaults for its hosts, and which hardware they are."""

    model_config = ConfigDict(defer_build=True)

    hardware: Annotated[Name | dict[Name, Patterns] | None, Field(description="all of it, or by globs")] = None
    user: User | None = None
    port: Port | None = None
    key: Path | None = None
    prefix: Prefix | None = None
    capabilities: Names = ()

    @model_validator(mode="after")
    def _one_kind(self) -> _Common:
        given = self.kinds()
        if len(given) != 1:
            kinds = ", ".join(_KINDS)
            raise ValueError(f"names {' and '.join(given) or 'no source'}; one of {kinds} is needed, with its file")
        return self

    def kinds(self) -> list[str]:
        """Keys of it that are kinds of sources."""
        return sorted(self.model_fields_set - set(_Common.model_fields))

    def spec(self, folder: Path) -> Spec:
        """The source; a relative path starts at `folder`."""
        (kind,) = self.kinds()
        path: str | None = getattr(self, kind)
        if path is None or path == STDIN:
            return Spec(kind, path)
        return Spec(kind, str(folder / os.path.expanduser(path)))  # noqa: PTH111 - there may be no such home

    def defaults(self) -> dict[str, Any]:
        """Keys of a host that are the same for all that do not say otherwise."""
        given = {"user": self.user, "port": self.port, "key": self.key, "prefix": self.prefix}
        return {
            **{key: value for key, value in given.items() if value is not None},
            "capabilities": [*self.capabilities],
        }


_FILE = Annotated[str | None, Field(description="a file; - is standard input, nothing asks this machine")]
# One of another package may have a name that is a key here, or none that a model takes: it has KIND:PATH alone.
_TAKEN = {*dir(_Common), *_Common.model_fields}
_KINDS: dict[str, Any] = {
    name: (_FILE, None) for name in names("inventories") if name.isidentifier() and name not in _TAKEN
}
if TYPE_CHECKING:
    Sources = tuple[_Common, ...]
else:
    SourceShape = create_model("SourceShape", __base__=_Common, __doc__="One source of hosts.", **_KINDS)
    Sources = Annotated[tuple[SourceShape, ...], BeforeValidator(_listed)]


def gather(spec: Spec, hardware: str | Mapping[str, Iterable[str]] | None = None) -> Gathered:
    """Reads a source. InventoryError, with its file and line, for what cannot be read or is no such source."""
    kind = find("inventories", spec.kind, InventorySource)  # type: ignore[type-abstract]
    text = _text(_fetched(spec, kind), spec)
    try:
        listing = kind.read(text)
    except MalformedInventory as error:
        raise InventoryError([_at(spec, error.line, str(error))]) from None
    except Exception as error:  # a reader of another package
        from_package = f"{type(error).__name__}: {error}"
        raise InventoryError([_at(spec, None, f"{kind.__module__} fails at it: {from_package}")]) from error
    claims = tuple(SourcedHost(found, _said(found, hardware)) for found in listing.hosts)
    return Gathered(spec, kind.title, claims, listing.skipped, listing.secrets)


def _said(found: ListedHost, hardware: str | Mapping[str, Iterable[str]] | None) -> tuple[str, ...] | None:
    if hardware is None or isinstance(hardware, str):
        return (found.hardware or None) if hardware is None else (hardware,)
    told = (found.name, found.address, *found.groups)
    return tuple(name for name, globs in hardware.items() if any(fnmatchcase(a, glob) for glob in globs for a in told))


def _at(spec: Spec, line: int | None, text: str) -> str:
    where = f"{spec.kind}:{STDIN}" if spec.path == STDIN else spec.path or spec.kind
    return f"{where}{f':{line}' if line else ''}: {' '.join(text.split())[:600]}"


def _fetched(spec: Spec, kind: type[InventorySource]) -> bytes:
    try:
        if spec.path == STDIN:
            return sys.stdin.buffer.read(MOST_BYTES)
        if spec.path is not None:
            return source.fetch(Path(spec.path), MOST_BYTES)
        if kind.commands:
            from pytest_hetgpu.extensions.runtimes.process.query import ask

            return ask(kind.commands)
    except source.SourceError as error:
        raise InventoryError([_at(spec, None, str(error))]) from None
    except NotHere as error:
        raise InventoryError([_at(spec, None, f"nothing here tells of {kind.title}: {error}")]) from None
    except OSError as error:
        said = str(error).partition("!")[0]
        why = f"standard input cannot be read ({said}); keep it in a file: {spec.kind}:PATH"
        raise InventoryError([_at(spec, None, why)]) from None
    raise InventoryError([_at(spec, None, f"{kind.title}: its file is missing; write {spec.kind}:PATH")])


_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def _text(data: bytes, spec: Spec) -> str:
    """What PowerShell writes is UTF-16, with a mark that says so."""
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InventoryError([_at(spec, line, f"not a text file: {error.reason}, byte {error.start}")]) from None
    if not text.strip():
        raise InventoryError([_at(spec, None, "is empty")])
    return text


def kind_of(claim: SourcedHost) -> str:
    """What a host can be, in words: `g4dn`, `cuda sm_75`, `GPUs of unknown kind`, `cpu`."""
    if claim.hardware is not None:
        return ", ".join(claim.hardware) or "no hardware by its pattern"
    if claim.found.platform == UNKNOWN_PLATFORM:
        return "GPUs of unknown kind" if claim.found.gpus else "what its name and groups say"
    if not claim.found.platform and claim.found.gpus is None:
        return "cpu (nothing is said of GPUs)"
    return f"{claim.found.platform or 'cpu'} {claim.found.arch}".strip()
