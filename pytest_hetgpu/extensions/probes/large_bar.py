"""Large BAR: access of a host to all of a device's memory, or to a window of it only."""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.probes import _pci
from pytest_hetgpu.extensions.probes.base import Probe, RawFacts
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

_VRAM = "mem_info_vram_total"
_VISIBLE = "mem_info_vis_vram_total"


class LargeBarProbe(Probe):
    """A probe for Large BAR: `yes` if the largest BAR of every device covers its memory.

    AMD: amdgpu reports the size of the memory and of the part that the host can access; without these the BAR in the
    PCI resources counts. NVIDIA: `nvidia-smi -q -d MEMORY` prints the frame buffer and BAR1.
    """

    title = "Large BAR"
    files = (*_pci.FILES, f"{_pci.ROOT}/*/{_VRAM}", f"{_pci.ROOT}/*/{_VISIBLE}")
    provides = ("large_bar.rocm", "large_bar.cuda", "large_bar.devices")

    def read(self, raw: RawFacts) -> Facts:
        amd = {device.address: self._amd(raw, device) for device in _pci.accelerators(raw, _pci.AMD)}
        nvidia = self._nvidia(raw.command("nvidia-smi-memory").out)
        known = {address: sizes for address, sizes in {**amd, **nvidia}.items() if sizes}
        shown = tuple(f"{one}: {_pci.mebibytes(a)} of {_pci.mebibytes(b)}" for one, (a, b) in known.items())
        return {
            "large_bar.rocm": self._verdict(amd, "AMD"),
            "large_bar.cuda": self._verdict(nvidia or dict.fromkeys(self._cards(raw)), "NVIDIA"),
            "large_bar.devices": self._shown(shown, bool(amd or self._cards(raw))),
        }

    @staticmethod
    def _shown(shown: tuple[str, ...], any_device: bool) -> Fact:
        if shown:
            return found(shown)
        return unknown("no device reports its sizes") if any_device else absent("no device of AMD's or NVIDIA's")

    @staticmethod
    def _cards(raw: RawFacts) -> list[str]:
        return [device.address for device in _pci.accelerators(raw, _pci.NVIDIA)]

    @staticmethod
    def _amd(raw: RawFacts, device: _pci.PciDevice) -> tuple[int, int] | None:
        """Return the bytes that the host can access, and all bytes."""
        folder = f"{_pci.ROOT}/{device.address}"
        total, visible = (raw.text(f"{folder}/{name}") or "" for name in (_VRAM, _VISIBLE))
        if not total.isdecimal():
            return None
        seen_bytes = int(visible) if visible.isdecimal() else device.bar
        return None if seen_bytes is None else (seen_bytes, int(total))

    @staticmethod
    def _nvidia(text: str) -> dict[str, tuple[int, int] | None]:
        sizes: dict[str, tuple[int, int] | None] = {}
        for block in re.split(r"^(?=GPU [0-9A-F]+:)", text, flags=re.MULTILINE)[1:]:
            memory, bar = (
                re.search(rf"^ *{title} Memory Usage\n *Total +: (\d+) MiB", block, re.MULTILINE)
                for title in ("FB", "BAR1")
            )
            address = _pci.plain(block.split()[1])
            sizes[address] = (int(bar[1]) * 1024**2, int(memory[1]) * 1024**2) if memory and bar else None
        return sizes

    @staticmethod
    def _verdict(devices: dict[str, tuple[int, int] | None], vendor: str) -> Fact:
        if not devices:
            return absent(f"no device of {vendor}'s")
        short = [
            f"{address} shows {_pci.mebibytes(sizes[0])} of {_pci.mebibytes(sizes[1])}"
            for address, sizes in devices.items()
            if sizes and sizes[0] < sizes[1]
        ]
        if short:
            return found("no", "; ".join(short))
        if None in devices.values():
            return unknown("the size of a device's memory, or of its BAR, is not reported")
        return found("yes")
