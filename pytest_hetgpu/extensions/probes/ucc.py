"""UCC: its version and the layers it was built with."""

from __future__ import annotations

from pathlib import PurePosixPath

from pytest_hetgpu.extensions.probes.base import Probe, Seen, first, or_absent, or_unknown
from pytest_hetgpu.model.facts import Facts, absent, found, unknown

_ASK = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.ucc_get_version_string.restype = ctypes.c_char_p
print("version " + lib.ucc_get_version_string().decode())
"""


class Ucc(Probe):
    """By `ucc_info -v`, and by asking the library itself (ucc/api/ucc_version.h)."""

    title = "UCC"
    commands = {"ucc_info": ("ucc_info", "-v")}
    each = {"ucc": {"argv": ["{python}", "-SE", "-c", _ASK], "paths": ["{lib}/libucc.so.1"], "first": 1}}
    paths = ("{lib}/ucc/libucc_*.so*",)
    promises = ("ucc", "ucc.library", "ucc.layers")

    def read(self, seen: Seen) -> Facts:
        path, ran = next(seen.each("ucc"), ("", None))
        info = seen.ran("ucc_info")
        if ran is None and info.missing:
            return dict.fromkeys(self.promises, absent("neither ucc_info nor libucc"))
        said = ran.out if ran else ""
        version = first(r"^version (\S+)", said) or first(r"^# UCC version=(\d[\w.]*)", info.out)
        layers = (PurePosixPath(one).name[len("libucc_") :].partition(".")[0] for one in seen.there("*/libucc_*.so*"))
        return {
            "ucc": found(version) if version else unknown(f"libucc: {ran.trouble if ran else info.trouble}"),
            "ucc.library": or_unknown(path, "no libucc in the loader's folders"),
            "ucc.layers": or_absent(tuple(sorted(set(layers))), "none beside libucc"),
        }
