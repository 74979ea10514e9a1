"""UCX: its version, how it was configured, its transports' modules, and whether it was built with `--enable-mt`."""

from __future__ import annotations

from pathlib import PurePosixPath

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first, or_absent, or_unknown
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

# Calls the library that ranks load: ucp_get_version_string(), and ucp_lib_query() for the highest thread mode. That is
# UCS_THREAD_MODE_MULTI (2) only if UCX was built with --enable-mt (ucp/api/ucp.h, ucp_context.c).
_ASK = """
import ctypes, sys
class Attr(ctypes.Structure):
    _fields_ = [("mask", ctypes.c_uint64), ("level", ctypes.c_int)]
lib = ctypes.CDLL(sys.argv[1])
lib.ucp_get_version_string.restype = ctypes.c_char_p
print("version " + lib.ucp_get_version_string().decode())
attr = Attr(1, -1)
if hasattr(lib, "ucp_lib_query") and lib.ucp_lib_query(ctypes.byref(attr)) == 0:
    print("level %d" % attr.level)
"""
_MULTI = "2"


class UcxProbe(Probe):
    """A probe by `ucx_info -v`, and by a call of the library itself, which works without `ucx_info` too."""

    title = "UCX"
    commands = {"ucx_info": ("ucx_info", "-v")}
    each = {"ucp": {"argv": ["{python}", "-SE", "-c", _ASK], "paths": ["{lib}/libucp.so.0"], "first": 1}}
    paths = ("{lib}/ucx/libuct_*.so*", "{lib}/openmpi/ucx/libuct_*.so*", "{lib}/mpich/ucx/libuct_*.so*")
    provides = ("ucx", "ucx.library", "ucx.enable_mt", "ucx.configure", "ucx.modules")

    def read(self, raw: RawFacts) -> Facts:
        path, result = next(raw.each("ucp"), ("", None))
        info = raw.command("ucx_info")
        if result is None and info.missing:
            return dict.fromkeys(self.provides, absent("neither ucx_info nor libucp"))
        said = result.out if result else ""
        version = first(r"^version (\S+)", said) or first(
            r"^# (?:Library version: |Version |UCT version=)(\d[\w.]*)", info.out
        )
        return {
            "ucx": found(version) if version else unknown(f"libucp: {result.error if result else info.error}"),
            "ucx.library": or_unknown(path, "no libucp in the loader's folders"),
            "ucx.enable_mt": self._threads(said, info.out),
            "ucx.configure": self._configured(info.out) if info.ok else unknown(f"ucx_info: {info.error}"),
            "ucx.modules": self._modules(raw, path),
        }

    @staticmethod
    def _threads(said: str, info: str) -> Fact:
        level = first(r"^level (\d+)", said)
        if level:
            return found("yes" if level == _MULTI else "no", "as libucp itself reports")
        configured = first(r"^# Configured with:(.*)", info)
        if configured is None:
            return unknown("neither libucp nor ucx_info reports it")
        flags = configured.split()
        return found("yes" if "--enable-mt" in flags else "no", "by the configure flags")

    @staticmethod
    def _configured(info: str) -> Fact:
        flags = first(r"^# Configured with:(.*)", info)
        return unknown("ucx_info does not report it") if flags is None else found(flags or "(no flags)")

    @staticmethod
    def _modules(raw: RawFacts, library: str) -> Fact:
        """Return names (`cma`, `ib`, `rocm`) of the modules in the folder `ucx` beside the called library."""
        if not library:
            return unknown("no libucp in the loader's folders")
        beside = PurePosixPath(library).parent / "ucx"
        ours = {path.name for path in map(PurePosixPath, raw.existing("*/libuct_*.so*")) if path.parent == beside}
        names = sorted({name.removeprefix("libuct_").partition(".")[0] for name in ours})
        return or_absent(tuple(names), f"no module in {beside}")
