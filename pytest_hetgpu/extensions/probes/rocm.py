"""AMD accelerators: the driver, ROCm, and the instruction set that each device really has."""

from __future__ import annotations

import re
from typing import NamedTuple

from pytest_hetgpu.extensions.probes import _pci
from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, or_absent, or_unknown
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

_NODES = "/sys/class/kfd/kfd/topology/nodes"


class Gpu(NamedTuple):
    """One node of KFD's topology that computes."""

    arch: str
    name: str
    address: str

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.arch, self.name, self.address)))


class RocmProbe(Probe):
    """A probe by KFD's topology in sysfs, which `rocminfo` reads too.

    `gfx_target_version` 90010 is gfx90a: two digits each for minor and stepping, which the name writes in hexadecimal.
    """

    title = "ROCm"
    files = (
        f"{_NODES}/*/properties",
        f"{_NODES}/*/name",
        "/sys/module/amdgpu/version",
        "/sys/module/amdgpu/initstate",
        "/opt/rocm*/.info/version",
        *_pci.FILES,
    )
    paths = ("/dev/kfd", "/dev/dri/render*", "/dev/dri/card*")
    provides = ("rocm.devices", "rocm.arch", "rocm.driver", "rocm.version", "rocm.access")

    def read(self, raw: RawFacts) -> Facts:
        gpus = [gpu for match, text in raw.texts(rf"{_NODES}/(\d+)/properties") if (gpu := self._gpu(raw, match, text))]
        releases = tuple(dict.fromkeys(text.split("-")[0] for _, text in raw.texts(r"/opt/rocm[^/]*/\.info/version")))
        return {
            "rocm.devices": found(tuple(map(str, gpus))) if gpus else self._none(raw),
            "rocm.arch": found(tuple(dict.fromkeys(gpu.arch for gpu in gpus))) if gpus else self._none(raw),
            "rocm.driver": self._driver(raw),
            "rocm.version": or_absent(releases[0] if len(releases) == 1 else releases, "no /opt/rocm/.info/version"),
            "rocm.access": self._access(raw),
        }

    @staticmethod
    def _gpu(raw: RawFacts, match: re.Match[str], text: str) -> Gpu | None:
        """Return an accelerator; None for a processor, whose `simd_count` is 0."""
        values = {words[0]: int(words[1]) for words in map(str.split, text.splitlines()) if len(words) == 2}
        version, place = values.get("gfx_target_version", 0), values.get("location_id", 0)
        if not values.get("simd_count") or not version:
            return None
        arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        # location_id is bus << 8 | device << 3 | function.
        address = f"{values.get('domain', 0):04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"
        return Gpu(arch, raw.text(f"{_NODES}/{match[1]}/name") or "", address)

    @staticmethod
    def _none(raw: RawFacts) -> Fact:
        devices = list(_pci.accelerators(raw, _pci.AMD))
        if not devices:
            return absent("no device of AMD's")
        named = f"a device of AMD's ({devices[0].device} at {devices[0].address}) is there"
        unread = next((why for path, why in raw.unread.items() if path.startswith(_NODES)), None)
        if unread:
            return unknown(f"{named}, but the driver's topology cannot be read: {unread}")
        return absent(f"{named}, but the amdgpu driver offers none for computing")

    @staticmethod
    def _driver(raw: RawFacts) -> Fact:
        version = raw.text("/sys/module/amdgpu/version")
        if version or raw.text("/sys/module/amdgpu/initstate"):
            return found(version or "the kernel's own")
        return absent("amdgpu is not loaded")

    @staticmethod
    def _access(raw: RawFacts) -> Fact:
        """Return our permissions on the driver's device: `rw` if this user may use it."""
        kfd = raw.paths.get("/dev/kfd")
        return or_unknown(kfd.may or "none", "") if kfd else absent("no /dev/kfd")
