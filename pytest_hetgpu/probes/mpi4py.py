"""mpi4py: what our rank programs are written in."""

from __future__ import annotations

from pytest_hetgpu.probes.base import Facts, Probe, Seen, absent, first, found, unknown


class Mpi4py(Probe):
    """By its package's metadata."""

    title = "mpi4py"
    files = (
        "{site}/mpi4py-*.dist-info/METADATA",
        "{site}/mpi4py-*.egg-info/PKG-INFO",
        "{site}/mpi4py-*.egg-info",
    )
    paths = ("{site}/mpi4py/__init__.py", "{site}/mpi4py/MPI.*.so")
    promises = ("mpi4py", "mpi4py.library")

    def read(self, seen: Seen) -> Facts:
        text = next((text for _, text in seen.texts(r".*/mpi4py-[^/]*(?:/METADATA|/PKG-INFO)?")), None)
        modules = seen.there("*/mpi4py/MPI.*.so")
        library = found(modules[0]) if modules else absent("no compiled module")
        version = first(r"^Version: (\S+)", text) if text else None
        if version:
            return {"mpi4py": found(version), "mpi4py.library": library}
        if seen.there("*/mpi4py/__init__.py"):
            return {"mpi4py": unknown("its package does not tell its version"), "mpi4py.library": library}
        return dict.fromkeys(self.promises, absent("not among the Python packages"))
