"""Dependencies of the key libraries by `ldd`, and those that the loader does not find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from pytest_hetgpu.extensions.probes.base import CommandOutput, Probe, RawFacts
from pytest_hetgpu.model.facts import Facts, absent, found, unknown

_PATHS = (
    "{lib}/libmpi.so.[14][02]",
    "{lib}/libucp.so.0",
    "{lib}/libucc.so.1",
    "{lib}/libfabric.so.1",
    "{lib}/libcxi.so.1",
    "{lib}/ucx/libuct_*.so.0",
    "{lib}/ucc/libucc_*.so.0",
    "{lib}/libfabric/lib*-fi.so",
    "{lib}/lib[nr]ccl.so.[12]",
    "{lib}/lib[nr]ccl-net*.so*",
    "{lib}/libamdhip64.so.[567]",
    "{site}/torch/lib/libtorch_python.so",
    "{site}/mpi4py/MPI.cpython*.so",
)
# Messages of glibc's loader about a library and about a symbol version; message of musl's.
_MISSING = re.compile(
    r"^\s*(\S+) => not found|(?<=: version `)([^']+)(?=' not found)|^Error loading shared library ([^\s:]+):",
    re.MULTILINE,
)


class LibrariesProbe(Probe):
    """A probe for libraries. `libraries` are the inspected ones, `libraries.unresolved` holds `LIBRARY: NEEDED`."""

    title = "Libraries"
    each = {"ldd": {"argv": ["{ldd}"], "paths": list(_PATHS), "first": 48}}
    provides = ("libraries", "libraries.unresolved")

    def read(self, raw: RawFacts) -> Facts:
        result = dict(raw.each("ldd"))
        if not result:
            return {name: absent("none of the key libraries is here") for name in self.provides}
        read = {path: one for path, one in result.items() if one.rc is not None and (one.out or one.err)}
        if not read:
            why = f"ldd: {next(iter(result.values())).error}"
            return {"libraries": found(tuple(result)), "libraries.unresolved": unknown(why)}
        missing = tuple(dict.fromkeys(self._unresolved(read)))
        resolved = absent(f"all of {len(read)} libraries resolve")
        return {"libraries": found(tuple(result)), "libraries.unresolved": found(missing) if missing else resolved}

    @staticmethod
    def _unresolved(read: dict[str, CommandOutput]) -> Iterator[str]:
        for path, result in read.items():
            for match in _MISSING.finditer(result.out + result.err):
                yield f"{PurePosixPath(path).name}: {match[1] or match[2] or match[3]}"
