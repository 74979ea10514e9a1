"""MPICH: from its wheel on PyPI (Hydra, UCX and libfabric in one environment), or the system's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pytest_hetgpu.extensions.stacks.base import Release, StackFamily


class Mpich(StackFamily):
    """MPICH."""

    vendor = "MPICH"
    distribution = "mpich"
    launchers = ("mpirun.mpich", "mpirun")
    library = "libmpi*.so.12"
    marker = b"MPICH Version:"
    launcher_version = r"^HYDRA build details:\s+Version:\s+(\d+(?:\.\d+)*)"
    releases: ClassVar[Mapping[str, Release]] = {
        "mpich": Release("5.0.2", ("mpich==5.0.2", "mpi4py==4.1.2", "numpy==2.2.6")),
        "mpich-system": Release(packages=("mpich", "python3-mpi4py", "python3-numpy")),
    }
