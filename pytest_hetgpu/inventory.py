"""Where the hardware of a matrix is: hosts for each kind, prefixes of stacks, how images are built here.

    hardware:
      g4ad: [10.0.0.5, {address: 10.0.0.6, user: ubuntu, key: ~/.ssh/aws.pem}]
    stacks:
      openmpi-5: /opt/openmpi-5.0.11
    build:
      cpu-ompi5: {args: {BASE: registry.local/debian:bookworm}, network: host}

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
from pytest_hetgpu.matrix.hardware import BuildShape, Prefix
from pytest_hetgpu.matrix.models import Form, Name, Names, Shape, choice
from pytest_hetgpu.model import Hardware, Reach

# What ssh, mpirun and a container engine take as an address: never an option, nothing that a list of hosts would split.
Address = Annotated[str, Form(r"^[A-Za-z0-9_\[][A-Za-z0-9_.:%\]-]*$", "be a host's name or address")]
User = Annotated[str, Form(r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?$", "be a user's name")]
Engine = Annotated[
    str,
    Form(
        r"^(ssh://([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_\[][A-Za-z0-9_.:%\]-]*(:[0-9]+)?/?|unix:///.+)$",
        "be ssh://USER@HOST or unix:///PATH",
    ),
]


class HostShape(Shape):
    """One host: `engine` is a container engine's address, `key` a private key's file, `prefix` where its MPI is."""

    address: Address
    engine: Engine | None = None
    user: User | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    key: Path | None = None
    prefix: Prefix | None = None
    capabilities: Names = ()

    def host(self, folder: Path) -> Host:
        """The noun; a relative key is looked for in `folder`."""
        key = str(_below(folder, self.key)) if self.key else None
        engine = self.engine or ("" if self.address in HERE else self._over_ssh())
        reach = Reach(engine, self.user, self.port, key)
        return Host(self.address, reach, self.prefix or "", frozenset(self.capabilities))

    def _over_ssh(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{self.address}{f':{self.port}' if self.port else ''}"


def _host(value: Any) -> Any:
    return {"address": value} if isinstance(value, str) else value


class InventoryShape(Shape):
    """The file."""

    hardware: dict[Name, tuple[Annotated[HostShape, BeforeValidator(_host)], ...]] = {}
    stacks: dict[Annotated[str, choice("stacks", "stack")], Path] = {}
    build: Annotated[dict[str, BuildShape], Field(description="by an image's folder name; * for every image")] = {}


@dataclass(frozen=True, slots=True)
class Host:
    """One host that can be a node. `prefix` is where its MPI is, "" where the matrix or PATH says so."""

    address: str
    reach: Reach = field(default_factory=Reach)
    prefix: str = ""
    capabilities: frozenset[str] = frozenset()


HERE = frozenset(("localhost", "127.0.0.1", "::1"))
LOCAL = Host("localhost")


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is where. Without a file (`given` False) every kind but those with runtime ssh is this machine."""

    given: bool = False
    file: str = ""
    hardware: Mapping[str, tuple[Host, ...]] = field(default_factory=dict)
    stacks: Mapping[str, Path] = field(default_factory=dict)
    build: Mapping[str, BuildShape] = field(default_factory=dict)

    def bind(self, nodes: tuple[Hardware, ...]) -> tuple[Host, ...]:
        """A host for each node of a placement. CPUs as processes or containers may share one, others need one each.

        Raises NotHere naming the kind of hardware that is missing.
        """
        taken: dict[str, int] = {}
        hosts = []
        for hardware in nodes:
            place = taken.get(hardware.name, 0)
            taken[hardware.name] = place + 1
            hosts.append(self._host(hardware, place))
        return tuple(hosts)

    def build_of(self, image: str) -> tuple[Mapping[str, str], str]:
        """Build arguments and network of an image by its folder's name, as this site wants them."""
        everywhere, own = (self.build.get(name, BuildShape()) for name in ("*", image))
        return {**everywhere.args, **own.args}, own.network or everywhere.network

    def _host(self, hardware: Hardware, place: int) -> Host:
        known = self.hardware.get(hardware.name, ())
        shared = hardware.runtime == "local" or (
            hardware.runtime == "docker" and hardware.accelerator.platform == "cpu"
        )
        if shared and known:
            return known[place % len(known)]
        if not self.given and hardware.runtime != "ssh" and (shared or place == 0):
            return LOCAL
        if shared:
            raise NotHere(f"needs hardware {hardware.name}, which the inventory {self.file} lacks")
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
    return Inventory(True, str(path), hosts, stacks, shape.build)


def _below(folder: Path, path: Path) -> Path:
    return folder / os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises where there is no such home
