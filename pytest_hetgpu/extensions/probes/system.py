"""The operating system: the base of a binary's ABI and of drivers."""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first, or_unknown
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

_ID = "[0-9a-f]{64}"
_OWN = r"(?:hostname|hosts|resolv\.conf) /etc/"
# Marks of containers: the cgroup of the first process (cgroup v1, or with the host's namespace), and the files
# that an engine mounts over the image's.
_GROUPS = {
    "docker": rf"[/:]docker[-/]{_ID}",
    "podman": rf"/libpod-{_ID}",
    "kubernetes": r"[/:]kubepods",
}
_MOUNTS = {
    "docker": rf"/containers/{_ID}/{_OWN}",
    "podman": rf"/overlay-containers/{_ID}/userdata/{_OWN}",
    "kubernetes": r"/pods/[0-9a-f-]{36}/etc-hosts /etc/",
}
_PATHS = {
    "podman": "/run/.containerenv",
    "apptainer": "/.singularity.d",
    "kubernetes": "/var/run/secrets/kubernetes.io",
}
_DOCKER = "/.dockerenv"  # also in virtual machines whose file system was made from a container's


class SystemProbe(Probe):
    """Distribution, kernel, C library, processor, memory in bytes, and the container if it is one."""

    title = "System"
    files = (
        "/etc/os-release",
        ("/proc/cpuinfo", 4096),
        ("/proc/meminfo", 256),
        "/proc/1/cgroup",
        "/proc/self/mountinfo",
    )
    paths = (_DOCKER, *_PATHS.values())
    provides = ("os", "kernel", "glibc", "machine", "python", "cpu", "cpus", "memory", "container")

    def read(self, raw: RawFacts) -> Facts:
        release = raw.text("/etc/os-release") or ""
        name = first(r'^PRETTY_NAME="?([^"\n]+)', release) or first(r'^NAME="?([^"\n]+)', release)
        kilobytes = first(r"^MemTotal:\s+(\d+) kB", raw.text("/proc/meminfo") or "")
        libc = str(raw.system.get("libc") or "")
        return {
            "os": or_unknown(name, "/etc/os-release does not name it"),
            "kernel": or_unknown(raw.system.get("kernel"), "not reported"),
            "glibc": found(libc.partition(" ")[2]) if libc.startswith("glibc ") else absent("another C library"),
            "machine": or_unknown(raw.system.get("machine"), "not reported"),
            "python": or_unknown(raw.system.get("python"), "not reported"),
            "cpu": or_unknown(self._model(raw), "/proc/cpuinfo does not name it"),
            "cpus": or_unknown(str(raw.system.get("cpus") or ""), "not reported"),
            "memory": or_unknown(str(int(kilobytes) * 1024) if kilobytes else None, "/proc/meminfo does not report it"),
            "container": self._container(raw),
        }

    @staticmethod
    def _container(raw: RawFacts) -> Fact:
        group, mounts = raw.text("/proc/1/cgroup") or "", raw.text("/proc/self/mountinfo") or ""
        signs = {kind for kind, pattern in _GROUPS.items() if re.search(pattern, group)}
        signs |= {kind for kind, pattern in _MOUNTS.items() if re.search(pattern, mounts)}
        signs |= {kind for kind, path in _PATHS.items() if path in raw.paths}
        if signs:
            return found(tuple(sorted(signs)))
        if _DOCKER in raw.paths:
            return unknown(f"there is {_DOCKER}, but neither its cgroup nor its mounts are a container's")
        return absent("no mark of a container")

    @staticmethod
    def _model(raw: RawFacts) -> str | None:
        text = raw.text("/proc/cpuinfo") or ""
        return first(r"^(?:model name|Model|cpu)\s*: (.+)", text) or first(r"^CPU implementer\s*: (.+)", text)
