"""mpi4py, the library of our rank programs."""

from __future__ import annotations

from pathlib import PurePosixPath

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

# Module names in mpi4py's wheels by the number of the MPI's library (mpi4py/_mpiabi.py).
_ABIS = {"libmpi.so.40": "openmpi", "libmpi.so.12": "mpich"}


class Mpi4pyProbe(Probe):
    """By its package's metadata."""

    title = "mpi4py"
    files = (
        "{site}/mpi4py-*.dist-info/METADATA",
        "{site}/mpi4py-*.egg-info/PKG-INFO",
        "{site}/mpi4py-*.egg-info",
    )
    paths = ("{site}/mpi4py/__init__.py", "{site}/mpi4py/MPI.*.so", *(f"{{lib}}/{name}" for name in _ABIS))
    provides = ("mpi4py", "mpi4py.library")

    def read(self, raw: RawFacts) -> Facts:
        text = next((text for _, text in raw.texts(r".*/mpi4py-[^/]*(?:/METADATA|/PKG-INFO)?")), None)
        library = self._library(raw)
        version = first(r"^Version: (\S+)", text) if text else None
        if version:
            return {"mpi4py": found(version), "mpi4py.library": library}
        if raw.existing("*/mpi4py/__init__.py"):
            return {"mpi4py": unknown("its package does not state its version"), "mpi4py.library": library}
        return dict.fromkeys(self.provides, absent("not among the Python packages"))

    @staticmethod
    def _library(raw: RawFacts) -> Fact:
        """Return the module that an import loads, or several candidates.

        A wheel has one per MPI, and loads that of the first MPI that it finds.
        """
        every = [PurePosixPath(path) for path in raw.existing("*/mpi4py/MPI.*.so")]
        modules = [path for path in every if path.parent == every[0].parent]
        if len(modules) > 1:
            libraries = [PurePosixPath(path) for name in _ABIS for path in raw.existing(f"*/{name}")]
            prefix = str(modules[0]).partition("/lib/python")[0]
            beside = [path for path in libraries if str(path.parent) == f"{prefix}/lib"]
            abis = {_ABIS[path.name] for path in beside or libraries}
            fitting = [path for path in modules if path.name.split(".")[1] in abis]
            modules = fitting if len(abis) == 1 and fitting else modules
        if not modules:
            return absent("no compiled module")
        several = "which one is loaded depends on the MPI" if len(modules) > 1 else ""
        return found(tuple(map(str, modules)) if len(modules) > 1 else str(modules[0]), several)
