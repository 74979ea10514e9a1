"""NVIDIA accelerators: the driver, its CUDA version, and the compute capability of each device."""

from __future__ import annotations

from pytest_hetgpu.extensions.probes import _pci
from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first, or_unknown
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

_FIELDS = ("index", "name", "compute_cap", "memory.total", "pci.bus_id")


class CudaProbe(Probe):
    """A probe by `nvidia-smi`, else by /proc/driver/nvidia and the PCI bus, which lack the compute capability."""

    title = "CUDA"
    commands = {
        "nvidia-smi": ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"),
        "nvidia-smi-memory": ("nvidia-smi", "-q", "-d", "MEMORY"),
    }
    files = ("/proc/driver/nvidia/version", "/usr/local/cuda/version.json", "/usr/local/cuda/version.txt", *_pci.FILES)
    paths = ("/dev/nvidia*",)
    provides = ("cuda.devices", "cuda.arch", "cuda.driver", "cuda.version", "cuda.toolkit")

    def read(self, raw: RawFacts) -> Facts:
        toolkit = first(
            r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([^"]+)"', raw.text("/usr/local/cuda/version.json") or ""
        )
        toolkit = toolkit or first(r"CUDA Version (\S+)", raw.text("/usr/local/cuda/version.txt") or "")
        header = raw.command("nvidia-smi-memory").out
        driver = first(r"^NVRM version:.*?\s(\d+\.\d[\d.]*)\s", raw.text("/proc/driver/nvidia/version") or "")
        driver = driver or first(r"^Driver Version\s*: (\S+)", header)
        return {
            **self._devices(raw),
            "cuda.driver": found(driver) if driver else self._none(raw),
            "cuda.version": or_unknown(first(r"^CUDA Version\s*: (\d\S*)", header), "nvidia-smi does not report it")
            if driver
            else self._none(raw),
            "cuda.toolkit": found(toolkit) if toolkit else absent("no /usr/local/cuda/version.json"),
        }

    def _devices(self, raw: RawFacts) -> Facts:
        result = raw.command("nvidia-smi")
        rows = [[word.strip() for word in line.split(",")] for line in result.out.splitlines()] if result.ok else []
        rows = [row for row in rows if len(row) == len(_FIELDS)]
        if not rows:
            return dict.fromkeys(("cuda.devices", "cuda.arch"), self._none(raw))
        archs = tuple(dict.fromkeys(f"sm_{row[2].replace('.', '')}" for row in rows if row[2][:1].isdigit()))
        return {
            "cuda.devices": found(tuple(f"{row[0]}: {row[1]}, {row[3]} MiB, {_pci.plain(row[4])}" for row in rows)),
            "cuda.arch": or_unknown(archs, "this nvidia-smi does not report the compute capability"),
        }

    @staticmethod
    def _none(raw: RawFacts) -> Fact:
        """Return the reason why there is no device; an absence is certain if neither driver nor bus shows one."""
        result = raw.command("nvidia-smi")
        driver = bool(raw.text("/proc/driver/nvidia/version"))
        devices = list(_pci.accelerators(raw, _pci.NVIDIA))
        if driver or (not result.missing and "No devices were found" not in result.out and not result.ok and devices):
            return unknown(f"the driver is loaded, but nvidia-smi does not answer: {result.error}")
        if devices:
            return absent(
                f"a device of NVIDIA's ({devices[0].device} at {devices[0].address}) is there, but not its driver"
            )
        return absent("no device of NVIDIA's" if _pci.looked(raw) else "no driver of NVIDIA's")
