"""UCC: its version and the layers it was built with."""

from __future__ import annotations

from pathlib import PurePosixPath

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first, or_absent, or_unknown
from pytest_hetgpu.model.facts import Facts, absent, found, unknown

_ASK = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.ucc_get_version_string.restype = ctypes.c_char_p
print("version " + lib.ucc_get_version_string().decode())
"""


class UccProbe(Probe):
    """A probe by `ucc_info -v`, and by a call of the library itself (ucc/api/ucc_version.h)."""

    title = "UCC"
    commands = {"ucc_info": ("ucc_info", "-v")}
    each = {"ucc": {"argv": ["{python}", "-SE", "-c", _ASK], "paths": ["{lib}/libucc.so.1"], "first": 1}}
    paths = ("{lib}/ucc/libucc_*.so*",)
    provides = ("ucc", "ucc.library", "ucc.layers")

    def read(self, raw: RawFacts) -> Facts:
        path, result = next(raw.each("ucc"), ("", None))
        info = raw.command("ucc_info")
        if result is None and info.missing:
            return dict.fromkeys(self.provides, absent("neither ucc_info nor libucc"))
        said = result.out if result else ""
        version = first(r"^version (\S+)", said) or first(r"^# UCC version=(\d[\w.]*)", info.out)
        layers = (PurePosixPath(one).name[len("libucc_") :].partition(".")[0] for one in raw.existing("*/libucc_*.so*"))
        return {
            "ucc": found(version) if version else unknown(f"libucc: {result.error if result else info.error}"),
            "ucc.library": or_unknown(path, "no libucc in the loader's folders"),
            "ucc.layers": or_absent(tuple(sorted(set(layers))), "none beside libucc"),
        }
