"""Versions that libraries, launchers and managers print in a log."""

from __future__ import annotations

_NUMBER = r"(\d{1,4}(?:\.\w{1,12}){1,4})"

# name, what is found in the line by the automaton, and where the number stands
SAYINGS: tuple[tuple[str, str, str], ...] = (
    ("ucx", "UCX  INFO  Version ", rf"UCX  INFO  Version {_NUMBER}"),  # ucp_context.c
    ("ucx", "UCX version ", rf"UCX version {_NUMBER}"),  # ompi/mca/pml/ucx/pml_ucx.c
    ("ucc", "UCC  INFO  version: ", rf"UCC  INFO  version: {_NUMBER}"),  # ucc_constructor.c
    ("nccl", "NCCL version ", rf"(?<!R)NCCL version {_NUMBER}"),  # init.cc
    ("rccl", "RCCL version ", rf"RCCL version[ :]*{_NUMBER}"),
    ("openmpi", "Open MPI v", rf"Open MPI v{_NUMBER}"),  # MPI_Get_library_version
    ("mpich", "MPICH Version:", rf"MPICH Version:\s*{_NUMBER}"),
    ("impi", "Intel(R) MPI Library", rf"Intel\(R\) MPI Library,? (?:for Linux\* OS, )?Version {_NUMBER}"),
    ("libfabric", "libfabric version:", rf"libfabric version:\s*{_NUMBER}"),
    ("aws-ofi-nccl", "aws-ofi-nccl ", rf"aws-ofi-nccl {_NUMBER}"),
    ("osu", "# OSU MPI", rf"# OSU MPI.* v{_NUMBER}"),
    ("torch", "torch version", rf"torch version\s*[:=]?\s*{_NUMBER}"),
    ("torch", "torch==", rf"torch=={_NUMBER}"),
    ("hip", "HIP version", rf"HIP version\s*:?\s*{_NUMBER}"),
    ("rocm", "ROCm version", rf"ROCm version\s*:?\s*{_NUMBER}"),
    ("slurm", "slurm 2", rf"\bslurm (2\d\.{_NUMBER})"),
)
