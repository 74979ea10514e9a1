"""The hosts and site settings of a run, and the choice of a host for each node of a placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.config.inventory.hosts import LOCAL, ConfiguredHost, Host
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes.containers.shapes import BuildShape
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.extensions.shapes import plain
from pytest_hetgpu.model.job import Hardware

if TYPE_CHECKING:
    from pytest_hetgpu.config.inventory.sources import LoadedSource


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
