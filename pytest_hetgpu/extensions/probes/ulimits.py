"""Limits of processes on a node: locked memory, shared memory, devices, and reading each other's memory."""

from __future__ import annotations

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first, or_unknown
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

_SYS_PTRACE = 19  # linux/capability.h
_SECCOMP = {"0": "none", "1": "strict", "2": "filter"}  # proc(5), Seccomp
# UCX's cma and Open MPI's smsc/cma between two ranks: one process reads the memory of another. Both libraries allow
# every reader (PR_SET_PTRACER, "Yama", with -1). The reader is no ancestor, and neither is a rank.
_CMA = """
import ctypes, os, sys
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(0x59616d61, ctypes.c_ulong(-1).value, 0, 0, 0)
there, here, target = ctypes.create_string_buffer(b"8 bytes"), ctypes.create_string_buffer(8), os.getpid()
child = os.fork()
if not child:
    mine, theirs = Part(ctypes.addressof(here), 8), Part(ctypes.addressof(there), 8)
    got = libc.process_vm_readv(target, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    os._exit(0 if got == 8 else ctypes.get_errno())
failed = os.waitpid(child, 0)[1] >> 8
print("denied " + os.strerror(failed) if failed else "read")
"""


class UlimitsProbe(Probe):
    """A probe of the limits of a process that is started like this one; sizes in bytes, or `unlimited`.

    `cma` is tried, not derived: it depends on ptrace_scope, capabilities, user namespaces and seccomp.
    """

    title = "Limits"
    files = ("/proc/self/limits", "/proc/self/status", "/proc/sys/kernel/yama/ptrace_scope")
    paths = ("/dev/infiniband/*",)
    space = ("/dev/shm",)  # noqa: S108 - looked at, not written
    commands = {"cma": ("{python}", "-SE", "-c", _CMA)}
    provides = (
        "memlock",
        "nofile",
        "shm",
        "dev_infiniband",
        "seccomp",
        "ptrace_scope",
        "cap_sys_ptrace",
        "cma",
    )

    def read(self, raw: RawFacts) -> Facts:
        status = raw.text("/proc/self/status") or ""
        seccomp = first(r"^Seccomp:\s*(\d)", status)
        capabilities = first(r"^CapEff:\s*([0-9a-f]+)", status)
        devices = tuple(path.rpartition("/")[2] for path in raw.existing("/dev/infiniband/*"))
        scope = raw.text("/proc/sys/kernel/yama/ptrace_scope")
        size = raw.space.get("/dev/shm", {}).get("size")  # noqa: S108
        return {
            "memlock": self._limit(raw, "Max locked memory"),
            "nofile": self._limit(raw, "Max open files"),
            "shm": found(str(size)) if size else absent("no /dev/shm"),
            "dev_infiniband": found(devices) if devices else absent("no /dev/infiniband"),
            "seccomp": or_unknown(_SECCOMP.get(seccomp or ""), "/proc/self/status does not report it"),
            "ptrace_scope": found(scope) if scope else absent("the kernel has no Yama"),
            "cap_sys_ptrace": self._capability(capabilities),
            "cma": self._cma(raw),
        }

    @staticmethod
    def _limit(raw: RawFacts, name: str) -> Fact:
        """Return the soft limit."""
        text = first(rf"^{name}\s+(unlimited|\d+)", raw.text("/proc/self/limits") or "")
        return or_unknown(text, "/proc/self/limits does not report it")

    @staticmethod
    def _capability(capabilities: str | None) -> Fact:
        if capabilities is None:
            return unknown("/proc/self/status does not report it")
        return found("yes" if int(capabilities, 16) >> _SYS_PTRACE & 1 else "no")

    @staticmethod
    def _cma(raw: RawFacts) -> Fact:
        result = raw.command("cma")
        said = result.out.strip()
        if result.ok and said == "read":
            return found("yes")
        if result.ok and said.startswith("denied "):
            return found("no", f"process_vm_readv: {said.partition(' ')[2]}")
        return unknown(f"process_vm_readv could not be tried: {result.error}")
