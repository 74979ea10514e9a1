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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from pytest_hetgpu.config.inventory.sources import (
    STDIN,
    LoadedSource,
    Port,
    SourcedHost,
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
from pytest_hetgpu.errors import InventoryError, NotHere
from pytest_hetgpu.extensions.inventories.base import ListedHost
from pytest_hetgpu.extensions.registry import names
from pytest_hetgpu.extensions.runtimes.containers.shapes import BuildShape
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.extensions.shapes import Form, Name, Names, Prefix, Shape, plain
from pytest_hetgpu.model.job import ConnectionInfo, Hardware
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


@dataclass(frozen=True, slots=True)
class Host:
    """One host that can be a node. `prefix` is that of its MPI; "" leaves it to the matrix or to PATH."""

    address: str
    reach: ConnectionInfo = field(default_factory=ConnectionInfo)
    prefix: str = ""
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConfiguredHost:
    """A host of a source that may be of several kinds of hardware, and its entry in that source."""

    host: Host
    #: Fingerprints of stored runs have it as `claim`.
    entry: SourcedHost = field(metadata={"key": "claim"})


HERE = frozenset(("localhost", "127.0.0.1", "::1"))
LOCAL = Host("localhost")


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hosts and site settings of a run.

    Without a file (`given` False) this machine is the only host of most kinds.
    """

    given: bool = False
    file: str = ""
    hardware: Mapping[str, tuple[Host, ...]] = field(default_factory=dict)
    stacks: Mapping[str, Path] = field(default_factory=dict)
    build: Mapping[str, BuildShape] = field(default_factory=dict)
    configured_hosts: tuple[ConfiguredHost, ...] = ()
    sources: tuple[LoadedSource, ...] = ()
    #: The settings of runtimes at this site: by runtime, then by hardware (`*` for all of the runtime).
    sites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    _candidates: dict[tuple[str, str, str | None], tuple[Host, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _by_name: dict[str | None, list[int]] = field(default_factory=dict, repr=False, compare=False)

    def bind(self, nodes: tuple[Hardware, ...]) -> tuple[Host, ...]:
        """Choose a host for each node of a placement.

        The first free host of a kind is chosen in the order of the inventory, so the choice is deterministic. CPU nodes
        that are processes or containers may share a host. Raises NotHere with the missing kind of hardware.
        """
        places: dict[str, int] = {}
        counts: dict[str, int] = {}
        used: set[Host] = set()
        hosts: list[Host] = []
        for hardware in nodes:
            if runtime_of(hardware.runtime).schedules:
                hosts.append(self._unplaced_host(hardware, len(hosts)))
                continue
            name, known = hardware.name, self.known(hardware)
            own = len(self.hardware.get(name, ()))
            free = (i for i in range(places.get(name, 0), len(known)) if i < own or known[i] not in used)
            place = next(free, None)
            places[name] = len(known) if place is None else place + 1
            host = self._shared_host(hardware, counts.get(name, 0), known) if place is None else known[place]
            counts[name] = counts.get(name, 0) + 1
            used.add(host)
            hosts.append(host)
        return tuple(hosts)

    def known(self, hardware: Hardware) -> tuple[Host, ...]:
        """Return the hosts that may be of that hardware, in order: those of the file, then those of its sources."""
        wanted = hardware.accelerator
        key = hardware.name, wanted.platform, wanted.arch
        if key not in self._candidates:
            sourced = (self.configured_hosts[place].host for place in self._fitting(hardware))
            self._candidates[key] = (*self.hardware.get(hardware.name, ()), *sourced)
        return self._candidates[key]

    def _fitting(self, hardware: Hardware) -> list[int]:
        """Return indices of sourced hosts that may be of that hardware, by the names of the user or by rules."""
        if not self._by_name:
            for place, host in enumerate(self.configured_hosts):
                for name in (None,) if host.entry.hardware is None else host.entry.hardware:
                    self._by_name.setdefault(name, []).append(place)
        matching = (place for place in self._by_name.get(None, ()) if self.configured_hosts[place].entry.fits(hardware))
        return sorted({*self._by_name.get(hardware.name, ()), *matching})

    def build_of(self, image: str) -> tuple[Mapping[str, str], str]:
        """Return the build arguments and network that this site sets for an image, by the name of its folder."""
        everywhere, own = (self.build.get(name, BuildShape()) for name in ("*", image))
        return {**everywhere.args, **own.args}, own.network or everywhere.network

    def settings(self) -> Iterator[object]:
        """Yield settings that may hold secrets: of builds, of runtimes, and the secrets of sources."""
        yield from (plain(site) for sites in self.sites.values() for site in sites.values())
        yield from (dict(build.args) for build in self.build.values())
        yield from ({"password": text} for one in self.sources for text in one.secrets)

    def site(self, hardware: Hardware) -> Hardware:
        """Return a kind of hardware with the settings that its runtime has at this site."""
        runtime, settings = runtime_of(hardware.runtime), hardware.settings
        for site in self._site(hardware):
            settings = runtime.with_site(settings, site)
        return hardware if settings == hardware.settings else replace(hardware, settings=settings)

    def _site(self, hardware: Hardware) -> list[Any]:
        """Return the settings of the file for a kind: those for all hardware of its runtime, then its own."""
        sites = self.sites.get(hardware.runtime, {})
        return [sites[name] for name in ("*", hardware.name) if name in sites]

    def _unplaced_host(self, hardware: Hardware, index: int) -> Host:
        """Return a host with a provisional name, for a node that a scheduler places later."""
        prefixes = [found for site in self._site(hardware) if (found := getattr(site, "prefix", None))]
        return Host(f"node{index}", prefix=prefixes[-1] if prefixes else "")

    def _shared_host(self, hardware: Hardware, place: int, known: tuple[Host, ...]) -> Host:
        """Return a host that another node has already, for the node after `place` others of its kind."""
        runtime = runtime_of(hardware.runtime)
        shared = runtime.shares_host(hardware)
        if shared and known:
            return known[place % len(known)]
        if not self.given and not runtime.needs_inventory and (shared or place == 0):
            return LOCAL
        hint = f" (`hetgpu doctor --list --inventory {self.file}` lists its hosts)" if self.sources else ""
        if shared:
            raise NotHere(f"needs hardware {hardware.name}, which the inventory {self.file} lacks{hint}")
        platform, arch = hardware.accelerator.platform, hardware.accelerator.arch or "any"
        needs = f"needs hardware {hardware.name} (platform={platform} arch={arch})"
        if not self.given:
            raise NotHere(f"{needs}: give --hetgpu-inventory")
        others = ", other nodes have one of these" if place < len(known) else ""
        has = f"the inventory {self.file} has {len(known)} of them{others}"
        raise NotHere(f"{needs}: {has}, the placement needs {place + 1}{hint}")


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
