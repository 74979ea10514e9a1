"""libfabric: its version and the providers it can use."""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first, or_unknown
from pytest_hetgpu.model.facts import Facts, absent, found, unknown

# `fi_info -l` without that program: fi_getinfo() with FI_PROV_ATTR_ONLY (1 << 54) lists every provider,
# fi_tostr(..., FI_TYPE_VERSION = 18) is the package's version (rdma/fabric.h; the layout is that of libfabric.so.1).
_ASK = """
import ctypes as c, sys
class Fabric(c.Structure):
    _fields_ = [("fid", c.c_void_p), ("name", c.c_char_p), ("provider", c.c_char_p)]
class Info(c.Structure):
    pass
pointers = [(name, c.c_void_p) for name in ("src", "dest", "handle", "tx", "rx", "ep", "domain")]
Info._fields_ = [("next", c.POINTER(Info)), ("caps", c.c_uint64), ("mode", c.c_uint64), ("format", c.c_uint32),
                 ("srclen", c.c_size_t), ("destlen", c.c_size_t)] + pointers + [("fabric", c.POINTER(Fabric))]
lib = c.CDLL(sys.argv[1])
lib.fi_version.restype, lib.fi_tostr.restype = c.c_uint32, c.c_char_p
number = lib.fi_version()
text = lib.fi_tostr(b"\\0" * 64, 18)
print("version " + (text.decode() if text and text[:1].isdigit() else "%d.%d" % (number >> 16, number & 0xffff)))
info = c.POINTER(Info)()
if lib.fi_getinfo(number, None, None, c.c_uint64(1 << 54), None, c.byref(info)) == 0:
    while info:
        print("provider " + info.contents.fabric.contents.provider.decode())
        info = info.contents.next
"""


class LibfabricProbe(Probe):
    """By `fi_info`, and by asking the library itself."""

    title = "libfabric"
    commands = {"fi_info": ("fi_info", "--version")}
    each = {"ofi": {"argv": ["{python}", "-SE", "-c", _ASK], "paths": ["{lib}/libfabric.so.1"], "first": 1}}
    provides = ("libfabric", "libfabric.library", "libfabric.providers")

    def read(self, raw: RawFacts) -> Facts:
        path, result = next(raw.each("ofi"), ("", None))
        info = raw.command("fi_info")
        if result is None and info.missing:
            return dict.fromkeys(self.provides, absent("neither fi_info nor libfabric"))
        said = result.out if result else ""
        version = first(r"^version (\S+)", said) or first(r"^libfabric: (\S+)", info.out)
        # Hooks and offloads are tools of libfabric itself and reach no other node.
        listed = re.findall(r"^provider (?!ofi_hook_|off_)(\S+)", said, re.MULTILINE)
        providers = tuple(dict.fromkeys(listed))
        trouble = result.error if result else "no libfabric in the loader's folders"
        return {
            "libfabric": found(version) if version else unknown(f"libfabric: {trouble}"),
            "libfabric.library": found(path) if path else unknown(trouble),
            "libfabric.providers": or_unknown(providers, f"libfabric: {trouble}"),
        }
