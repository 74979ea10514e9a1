"""Where the hardware of a matrix is: hosts for each kind, and prefixes of stacks.

    hardware:
      g4ad: [10.0.0.5, {address: 10.0.0.6, user: ubuntu}]
    stacks:
      openmpi-5: /opt/openmpi-5.0.11

Kept apart from the matrix, which can then be shared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from pytest_hetgpu.errors import InventoryError, NotHere
from pytest_hetgpu.matrix import source
from pytest_hetgpu.matrix.complaints import Complaints
from pytest_hetgpu.matrix.models import Name, Names, Shape, choice
from pytest_hetgpu.model import Hardware


class HostShape(Shape):
    """One host: `engine` is a container engine's address, `key` a private key's file."""

    address: Annotated[str, Field(min_length=1)]
    engine: str | None = None
    user: str | None = None
    key: Path | None = None
    capabilities: Names = ()

    def host(self, folder: Path) -> Host:
        """The noun; a relative key is looked for in `folder`."""
        key = _below(folder, self.key) if self.key else None
        return Host(self.address, self.engine, self.user, key, frozenset(self.capabilities))


def _host(value: Any) -> Any:
    return {"address": value} if isinstance(value, str) else value


class InventoryShape(Shape):
    """The file."""

    hardware: dict[Name, tuple[Annotated[HostShape, BeforeValidator(_host)], ...]] = {}
    stacks: dict[Annotated[str, choice("stacks", "stack")], Path] = {}


@dataclass(frozen=True, slots=True)
class Host:
    """One host that can be a node."""

    address: str
    engine: str | None = None
    user: str | None = None
    key: Path | None = None
    capabilities: frozenset[str] = frozenset()


LOCAL = Host("localhost")


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is where. Without a file (`given` False) every kind with runtime local is this machine."""

    given: bool = False
    file: str = ""
    hardware: Mapping[str, tuple[Host, ...]] = field(default_factory=dict)
    stacks: Mapping[str, Path] = field(default_factory=dict)

    def bind(self, nodes: tuple[Hardware, ...]) -> tuple[Host, ...]:
        """A host for each node of a placement. Kinds with runtime local may share a host, others need one each.

        Raises NotHere naming the kind of hardware that is missing.
        """
        taken: dict[str, int] = {}
        hosts = []
        for hardware in nodes:
            place = taken.get(hardware.name, 0)
            taken[hardware.name] = place + 1
            hosts.append(self._host(hardware, place))
        return tuple(hosts)

    def _host(self, hardware: Hardware, place: int) -> Host:
        known = self.hardware.get(hardware.name, ())
        if hardware.runtime == "local":
            if self.given and not known:
                raise NotHere(f"needs hardware {hardware.name}, which the inventory {self.file} lacks")
            return known[place % len(known)] if known else LOCAL
        if place < len(known):
            return known[place]
        platform, arch = hardware.accelerator.platform, hardware.accelerator.arch or "any"
        needs = f"needs hardware {hardware.name} (platform={platform} arch={arch})"
        if not self.given:
            raise NotHere(f"{needs}: give --hetgpu-inventory")
        raise NotHere(f"{needs}: the inventory {self.file} has {len(known)} of them, the placement needs {place + 1}")


def read(path: Path) -> Inventory:
    """The inventory of a file; its relative paths start at its folder. Raises InventoryError with every complaint."""
    complaints = Complaints(str(path))
    try:
        tree = source.load(path)
        shape = InventoryShape.model_validate(source.plain(tree) or {})
    except source.SourceError as error:
        complaints.add(error.line, str(error))
        raise InventoryError(complaints.listed()) from None
    except ValidationError as error:
        complaints.invalid(error, tree, "", InventoryShape)
        raise InventoryError(complaints.listed()) from None
    folder = path.parent.absolute()
    hosts = {name: tuple(entry.host(folder) for entry in entries) for name, entries in shape.hardware.items()}
    stacks = {name: _below(folder, prefix) for name, prefix in shape.stacks.items()}
    return Inventory(True, str(path), hosts, stacks)


def _below(folder: Path, path: Path) -> Path:
    return folder / os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises where there is no such home
