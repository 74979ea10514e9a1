"""Hosts of an inventory: those of its file, and those of its sources with their entries there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pytest_hetgpu.extensions.inventories.base import ListedHost
from pytest_hetgpu.model.job import ConnectionInfo, Hardware


@dataclass(frozen=True, slots=True)
class Host:
    """One host that can be a node. `prefix` is that of its MPI; "" leaves it to the matrix or to PATH."""

    address: str
    reach: ConnectionInfo = field(default_factory=ConnectionInfo)
    prefix: str = ""
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SourcedHost:
    """A host of a source. `hardware` are the names that the user gave it; None means that rules find them."""

    found: ListedHost
    hardware: tuple[str, ...] | None = None

    def fits(self, wanted: Hardware) -> bool:
        """Return whether the host is of that hardware.

        A name that the user gave decides; otherwise its groups, its name, or its platform and arch do.
        """
        if self.hardware is not None:
            return wanted.name in self.hardware
        if wanted.name in self.found.groups or re.fullmatch(rf"{re.escape(wanted.name)}[-_.]?[0-9]*", self.found.name):
            return True
        platform, arch = self.found.platform or "cpu", self.found.arch
        same = platform == wanted.accelerator.platform
        return same and (not arch or not wanted.accelerator.arch or arch == wanted.accelerator.arch)


@dataclass(frozen=True, slots=True)
class ConfiguredHost:
    """A host of a source that may be of several kinds of hardware, and its entry in that source."""

    host: Host
    #: Fingerprints of stored runs have it as `claim`.
    entry: SourcedHost = field(metadata={"key": "claim"})


HERE = frozenset(("localhost", "127.0.0.1", "::1"))
LOCAL = Host("localhost")
