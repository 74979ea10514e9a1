"""Inventories from existing sources of a site: `KIND:PATH`, or `from: {KIND: PATH, ...}` in a YAML inventory.

The kinds are the files of `inventories/`, which parse text. This module fetches that text. It also assigns names of
hardware to the hosts if the user gives any.
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

from pytest_hetgpu.config.inventory.hosts import SourcedHost
from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.errors import InventoryError, NotHere, UsageError
from pytest_hetgpu.extensions.inventories.base import (
    UNKNOWN_PLATFORM,
    InventorySource,
    ListedHost,
    MalformedInventory,
    SkippedEntry,
)
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.shapes import Form, Name, Names, Prefix, Shape
from pytest_hetgpu.model.messages import known, show

MOST_BYTES = 256_000_000
STDIN = "-"
_SPEC = re.compile(r"([A-Za-z][A-Za-z0-9_.+-]*):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spec:
    """One source: a kind by its name in `inventories/`; `path` is a file, STDIN, or None to query this machine."""

    kind: str
    path: str | None

    def __str__(self) -> str:
        return f"{self.kind}:{self.path or ''}"

    @property
    def is_file(self) -> bool:
        """Return whether its text is in a file that can be read again."""
        return self.path not in (None, STDIN)


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """The hosts of one source in order, with its `skipped` entries and its secrets. `hetgpu doctor` prints it."""

    spec: Spec
    title: str
    hosts: tuple[SourcedHost, ...] = ()
    skipped: tuple[SkippedEntry, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)


def spec_of(text: str) -> Spec | None:
    """Parse `KIND:PATH`; None for an inventory file. Raises UsageError for an unknown kind."""
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


# ssh takes it as a user, so it must be no option.
User = Annotated[str, Form(r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?$", "be a user's name")]
Port = Annotated[int, Field(ge=1, le=65535)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(_patterns, json_schema_input_type=str | list[str])]


class _Common(Shape):
    """The settings of a source besides its kind and path: defaults for its hosts, and their hardware."""

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
        """Return the keys that are kinds of sources."""
        return sorted(self.model_fields_set - set(_Common.model_fields))

    def spec(self, folder: Path) -> Spec:
        """Return the source. A relative path starts at `folder`."""
        (kind,) = self.kinds()
        path: str | None = getattr(self, kind)
        if path is None or path == STDIN:
            return Spec(kind, path)
        return Spec(kind, str(folder / os.path.expanduser(path)))  # noqa: PTH111 - there may be no such home

    def defaults(self) -> dict[str, Any]:
        """Return the default values for keys of its hosts."""
        given = {"user": self.user, "port": self.port, "key": self.key, "prefix": self.prefix}
        return {
            **{key: value for key, value in given.items() if value is not None},
            "capabilities": [*self.capabilities],
        }


_FILE = Annotated[str | None, Field(description="a file; - is standard input, nothing asks this machine")]
# A kind of another package may have the name of a key, or a name that no model accepts. Then only KIND:PATH works.
_TAKEN = {*dir(_Common), *_Common.model_fields}
_KINDS: dict[str, Any] = {
    name: (_FILE, None) for name in names("inventories") if name.isidentifier() and name not in _TAKEN
}
if TYPE_CHECKING:
    Sources = tuple[_Common, ...]
else:
    SourceShape = create_model("SourceShape", __base__=_Common, __doc__="One source of hosts.", **_KINDS)
    Sources = Annotated[tuple[SourceShape, ...], BeforeValidator(_listed)]


def read_source(spec: Spec, hardware: str | Mapping[str, Iterable[str]] | None = None) -> LoadedSource:
    """Read a source. Raises InventoryError with file and line if it cannot be read or parsed."""
    kind = find("inventories", spec.kind, InventorySource)  # type: ignore[type-abstract]
    text = _text(_fetched(spec, kind), spec)
    try:
        listing = kind.read(text)
    except MalformedInventory as error:
        raise InventoryError([_at(spec, error.line, str(error))]) from None
    except Exception as error:  # a reader of another package
        from_package = f"{type(error).__name__}: {error}"
        raise InventoryError([_at(spec, None, f"{kind.__module__} fails at it: {from_package}")]) from error
    hosts = tuple(SourcedHost(found, _assigned_hardware(found, hardware)) for found in listing.hosts)
    return LoadedSource(spec, kind.title, hosts, listing.skipped, listing.secrets)


def _assigned_hardware(found: ListedHost, hardware: str | Mapping[str, Iterable[str]] | None) -> tuple[str, ...] | None:
    if hardware is None or isinstance(hardware, str):
        return (found.hardware or None) if hardware is None else (hardware,)
    labels = (found.name, found.address, *found.groups)
    return tuple(name for name, globs in hardware.items() if any(fnmatchcase(a, b) for b in globs for a in labels))


def _at(spec: Spec, line: int | None, text: str) -> str:
    place = f"{spec.kind}:{STDIN}" if spec.path == STDIN else spec.path or spec.kind
    return f"{place}{f':{line}' if line else ''}: {' '.join(text.split())[:600]}"


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
        raise InventoryError([_at(spec, None, f"no access to {kind.title}: {error}")]) from None
    except OSError as error:
        reason = str(error).partition("!")[0]
        why = f"standard input cannot be read ({reason}); keep it in a file: {spec.kind}:PATH"
        raise InventoryError([_at(spec, None, why)]) from None
    raise InventoryError([_at(spec, None, f"{kind.title}: its file is missing; write {spec.kind}:PATH")])


_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def _text(data: bytes, spec: Spec) -> str:
    """Decode a text by its byte order mark, as PowerShell writes UTF-16; without one it is UTF-8."""
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InventoryError([_at(spec, line, f"not a text file: {error.reason}, byte {error.start}")]) from None
    if not text.strip():
        raise InventoryError([_at(spec, None, "is empty")])
    return text


def kind_of(host: SourcedHost) -> str:
    """Describe the possible hardware of a host: `g4dn`, `cuda sm_75`, `GPUs of unknown kind`, `cpu`."""
    if host.hardware is not None:
        return ", ".join(host.hardware) or "no hardware by its pattern"
    if host.found.platform == UNKNOWN_PLATFORM:
        return "GPUs of unknown kind" if host.found.gpus else "hardware by its name and groups"
    if not host.found.platform and host.found.gpus is None:
        return "cpu (no GPUs listed)"
    return f"{host.found.platform or 'cpu'} {host.found.arch}".strip()
