"""PCI devices from sysfs: they show without a loaded driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pytest_hetgpu.extensions.probes.base import RawFacts

ROOT = "/sys/bus/pci/devices"
FILES = tuple(f"{ROOT}/*/{name}" for name in ("vendor", "device", "class", "resource"))
AMD, NVIDIA = "0x1002", "0x10de"
# Base class 03 is a display controller, 12 a processing accelerator (PCI Code and ID Assignment Specification).
_ACCELERATOR = re.compile(r"0x(?:03|12)")


class PciDevice(NamedTuple):
    """One accelerator: its address (`0000:00:1e.0`), its vendor's number for it, and its largest BAR in bytes."""

    address: str
    device: str
    bar: int | None


def accelerators(raw: RawFacts, vendor: str) -> Iterator[PciDevice]:
    """Yield the accelerators of a vendor."""
    for match, text in raw.texts(rf"{ROOT}/([^/]+)/vendor"):
        folder = f"{ROOT}/{match[1]}"
        if text == vendor and _ACCELERATOR.match(raw.text(f"{folder}/class") or ""):
            yield PciDevice(match[1], raw.text(f"{folder}/device") or "", largest_bar(raw.text(f"{folder}/resource")))


def looked(raw: RawFacts) -> bool:
    """Return whether any PCI device is visible. A machine without the bus, or a container without it, shows none."""
    return any(path.startswith(ROOT) for path in raw.files)


def largest_bar(resource: str | None) -> int | None:
    """Return the bytes of the largest of the six base address registers, the first lines (START END FLAGS)."""
    sizes = []
    for line in (resource or "").splitlines()[:6]:
        words = line.split()
        start, end = (int(word, 16) for word in words[:2]) if len(words) == 3 else (0, 0)
        if end > start:
            sizes.append(end - start + 1)
    return max(sizes, default=None)


def plain(address: str) -> str:
    """Return the address in the form of sysfs, `0000:00:1e.0`; NVIDIA's tools print the domain with eight digits."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def mebibytes(size: int) -> str:
    """Format bytes as `8176 MiB`."""
    return f"{size // 1024**2} MiB"
