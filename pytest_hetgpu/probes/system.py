"""The operating system: what a binary's ABI and a driver stand on."""

from __future__ import annotations

from pytest_hetgpu.probes.base import Facts, Probe, Seen, absent, first, found, or_unknown

_CONTAINERS = {
    "docker": ("/.dockerenv",),
    "podman": ("/run/.containerenv",),
    "apptainer": ("/.singularity.d",),
    "kubernetes": ("/var/run/secrets/kubernetes.io",),
}


class System(Probe):
    """Distribution, kernel, C library, processor, memory in bytes, and the container if it is one."""

    title = "System"
    files = ("/etc/os-release", ("/proc/cpuinfo", 4096), ("/proc/meminfo", 256))
    paths = tuple(path for paths in _CONTAINERS.values() for path in paths)
    promises = ("os", "kernel", "glibc", "machine", "python", "cpu", "cpus", "memory", "container")

    def read(self, seen: Seen) -> Facts:
        release = seen.text("/etc/os-release") or ""
        name = first(r'^PRETTY_NAME="?([^"\n]+)', release) or first(r'^NAME="?([^"\n]+)', release)
        kilobytes = first(r"^MemTotal:\s+(\d+) kB", seen.text("/proc/meminfo") or "")
        libc = str(seen.system.get("libc") or "")
        containers = tuple(kind for kind, paths in _CONTAINERS.items() if any(path in seen.paths for path in paths))
        return {
            "os": or_unknown(name, "/etc/os-release does not name it"),
            "kernel": or_unknown(seen.system.get("kernel"), "not told"),
            "glibc": found(libc.partition(" ")[2]) if libc.startswith("glibc ") else absent("another C library"),
            "machine": or_unknown(seen.system.get("machine"), "not told"),
            "python": or_unknown(seen.system.get("python"), "not told"),
            "cpu": or_unknown(self._model(seen), "/proc/cpuinfo does not name it"),
            "cpus": or_unknown(str(seen.system.get("cpus") or ""), "not told"),
            "memory": or_unknown(str(int(kilobytes) * 1024) if kilobytes else None, "/proc/meminfo does not tell"),
            "container": found(containers) if containers else absent("no mark of a container"),
        }

    @staticmethod
    def _model(seen: Seen) -> str | None:
        text = seen.text("/proc/cpuinfo") or ""
        return first(r"^(?:model name|Model|cpu)\s*: (.+)", text) or first(r"^CPU implementer\s*: (.+)", text)
