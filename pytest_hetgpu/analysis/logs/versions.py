"""Versions of libraries as they print them in a log, by lower-case name: `ucx`, `nccl`, `openmpi`."""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.signatures.base import LogLine

_NUMBER = r"(\d{1,4}(?:\.\w{1,12}){1,4})"

# Name, trigger for the automaton, and pattern of the number.
_VERSION_TEXTS: tuple[tuple[str, str, str], ...] = (
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


class Versions:
    """Parser of the first version that each library prints; further versions are joined by commas."""

    triggers = tuple(dict.fromkeys(trigger.encode() for _, trigger, _ in _VERSION_TEXTS))

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, None]] = {}

    def feed(self, line: LogLine) -> None:
        """Take one line that holds a trigger."""
        for name, trigger, pattern in _VERSION_TEXTS:
            if trigger in line.text and (found := re.search(pattern, line.text[:1000])):
                seen = self._seen.setdefault(name, {})
                if len(seen) < 8:
                    seen.setdefault(found[1])

    @property
    def found(self) -> dict[str, str]:
        """Versions by library, like `{"ucx": "1.18.0", "openmpi": "5.0.11, 5.0.7"}`."""
        return {name: ", ".join(versions) for name, versions in self._seen.items()}
