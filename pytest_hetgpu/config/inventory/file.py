"""Site settings for a matrix: hosts for each kind of hardware, prefixes of stacks, build settings of images.

    hardware:
      g4ad: [10.0.0.5, {address: 10.0.0.6, user: ubuntu, key: ~/.ssh/aws.pem}]
    stacks:
      openmpi-5: /opt/openmpi-5.0.11
    build:
      cpu-ompi5: {args: {BASE: registry.local/debian:bookworm}, network: host}
    from: {terraform: outputs.json, hardware: {g4dn: nvidia_*}}
    slurm:
      "*": {account: project_1, time: 20}
      mi250x: {partition: standard-g, prefix: /opt/openmpi-5}
    kubernetes:
      "*": {namespace: gpu-tests, context: rcp}
      h200: {image: registry.local/roce:1, node_selector: {gpu: h200}}

They are kept apart from the matrix, so a matrix can be shared between sites.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from pytest_hetgpu.config.inventory.hosts import HERE, ConfiguredHost, Host
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.inventory.sources import (
    STDIN,
    LoadedSource,
    Port,
    Sources,
    Spec,
    User,
    read_source,
    spec_of,
)
from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.models import choice
from pytest_hetgpu.config.matrix.runtime_settings import extended, runtime_settings
from pytest_hetgpu.errors import InventoryError
from pytest_hetgpu.extensions.inventories.base import ListedHost
from pytest_hetgpu.extensions.registry import names
from pytest_hetgpu.extensions.runtimes.containers.shapes import BuildShape
from pytest_hetgpu.extensions.shapes import Form, Name, Names, Prefix, Shape
from pytest_hetgpu.model.job import ConnectionInfo
from pytest_hetgpu.model.messages import show

# ssh, mpirun and container engines take it as an address, so it must be no option and hold no separator of a host list.
Address = Annotated[str, Form(r"^[A-Za-z0-9_\[][A-Za-z0-9_.:%\]-]*$", "be a host's name or address")]
Engine = Annotated[
    str,
    Form(
        r"^(ssh://([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_\[][A-Za-z0-9_.:%\]-]*(:[0-9]+)?/?|unix:///.+)$",
        "be ssh://USER@HOST or unix:///PATH",
    ),
]


class HostShape(Shape):
    """One host: `engine` is the address of a container engine, `key` a private key file, `prefix` that of its MPI."""

    # Most runs have no inventory, so the validators of its shapes are built on first use.
    model_config = ConfigDict(defer_build=True)

    address: Address
    engine: Engine | None = None
    user: User | None = None
    port: Port | None = None
    key: Path | None = None
    prefix: Prefix | None = None
    capabilities: Names = ()

    def host(self, folder: Path) -> Host:
        """Convert to a Host. A relative key starts at `folder`."""
        key = str(_below(folder, self.key)) if self.key else None
        engine = self.engine or ("" if self.address in HERE else self._over_ssh())
        reach = ConnectionInfo(engine, self.user, self.port, key)
        return Host(self.address, reach, self.prefix or "", frozenset(self.capabilities))

    def _over_ssh(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{self.address}{f':{self.port}' if self.port else ''}"


def _host(value: Any) -> Any:
    return {"address": value} if isinstance(value, str) else value


class InventoryShape(Shape):
    """The whole inventory file."""

    model_config = ConfigDict(defer_build=True)

    hardware: dict[Name, tuple[Annotated[HostShape, BeforeValidator(_host)], ...]] = {}
    sources: Annotated[Sources, Field(alias="from")] = ()
    stacks: dict[Annotated[str, choice("stacks", "stack")], Path] = {}
    build: Annotated[dict[str, BuildShape], Field(description="by an image's folder name; * for every image")] = {}


def _shape_of(content: object) -> type[InventoryShape]:
    """Return the shape of a file, with the keys of the runtimes that the file names."""
    return _with_sites(frozenset(name for name in names("runtimes") if isinstance(content, dict) and name in content))


@cache
def _with_sites(wanted: frozenset[str]) -> type[InventoryShape]:
    models = runtime_settings(wanted, InventoryShape, lambda runtime: runtime.site_settings)
    return extended(InventoryShape, {name: (_by_hardware(name, model), {}) for name, model in models.items()})


def _by_hardware(runtime: str, model: Any) -> Any:
    return Annotated[dict[str, model], Field(description=f"by hardware; * for all that runtime {runtime} has")]


def read(given: str | Path, *, files_only: bool = False) -> Inventory:
    """Read the inventory of a file, or of a source (`slurm:nodes.json`). Raises InventoryError with every error.

    With `files_only`, sources that are no files (standard input, this machine) are left out.
    """
    spec = spec_of(str(given))
    if spec is None:
        return _of_file(Path(given), files_only)
    if files_only and not spec.is_file:
        return Inventory(True, str(given))
    folder = Path.cwd()
    if spec.path not in (None, STDIN):
        spec = Spec(spec.kind, os.path.expanduser(str(spec.path)))  # noqa: PTH111 - as below
        folder = Path(str(spec.path)).parent.absolute()
    found = read_source(spec)
    return Inventory(True, str(given), configured_hosts=_configured(found, {}, folder), sources=(found,))


def _of_file(path: Path, files_only: bool) -> Inventory:
    """Read the inventory of a YAML file. Its relative paths start at its folder."""
    diagnostics = Diagnostics(str(path))
    other = (
        "" if path.suffix in (".yaml", ".yml") else f"; of another kind? {', '.join(names('inventories'))}: KIND:PATH"
    )
    try:
        tree = source.load(path)
        if not isinstance(tree, source.Mapping) and other:
            diagnostics.add(tree.line, f"the file must be a map{other}")
            raise InventoryError(diagnostics.listed())
        content = source.plain(tree) or {}
        shape = _shape_of(content).model_validate(content)
    except source.SourceError as error:
        diagnostics.add(error.line, f"{error}{other if str(error).startswith('not YAML') else ''}")
        raise InventoryError(diagnostics.listed()) from None
    except ValidationError as error:
        diagnostics.invalid(error, tree, "", _with_sites(frozenset(names("runtimes"))))
        raise InventoryError(diagnostics.listed()) from None
    folder = path.parent.absolute()
    hosts = {name: tuple(entry.host(folder) for entry in entries) for name, entries in shape.hardware.items()}
    stacks = {name: _below(folder, prefix) for name, prefix in shape.stacks.items()}
    sources = [(one, spec) for one in shape.sources if (spec := one.spec(path.parent)).is_file or not files_only]
    found = [(read_source(spec, one.hardware), one.defaults()) for one, spec in sources]
    configured = tuple(host for one, defaults in found for host in _configured(one, defaults, folder))
    return Inventory(
        True,
        str(path),
        hosts,
        stacks,
        shape.build,
        configured,
        tuple(one for one, _ in found),
        {name: getattr(shape, name) for name in type(shape).model_fields if name not in InventoryShape.model_fields},
    )


def _configured(loaded: LoadedSource, defaults: Mapping[str, Any], folder: Path) -> tuple[ConfiguredHost, ...]:
    """Return the hosts of a source. Raises InventoryError with every invalid address, user and port."""
    diagnostics = Diagnostics(loaded.spec.path or str(loaded.spec))
    configured = []
    for entry in loaded.hosts:
        try:
            host = HostShape.model_validate({**defaults, **_keys(entry.found)}).host(folder)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                diagnostics.add(entry.found.line, f"{show(entry.found.name)}: {_wrong(detail)}")
        else:
            configured.append(ConfiguredHost(host, entry))
    if diagnostics:
        raise InventoryError(diagnostics.listed())
    return tuple(configured)


def _keys(found: ListedHost) -> dict[str, Any]:
    """Return a listed host as keys of HostShape. Missing values are left to the defaults."""
    address = f"[{found.address}]" if found.address.startswith(":") else found.address
    keys: dict[str, Any] = {"address": address}
    keys |= {key: getattr(found, key) for key in ("user", "port", "key") if getattr(found, key) is not None}
    if found.engine_host:
        user = f"{found.user}@" if found.user else ""
        engine_host = f"[{found.engine_host}]" if ":" in found.engine_host else found.engine_host
        keys["engine"] = f"ssh://{user}{engine_host}{f':{found.port}' if found.port else ''}"
    return keys


def _wrong(detail: Mapping[str, Any]) -> str:
    key = str(detail["loc"][0]) if detail["loc"] else ""
    if detail["type"] == "value_error":
        return f"its {key} {detail['ctx']['error']}"
    wanted = "a number from 1 to 65535" if key == "port" else "something else"
    return f"its {key} must be {wanted}, not {show(detail.get('input'))}"


def _below(folder: Path, path: Path) -> Path:
    return folder / os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises where there is no such home
