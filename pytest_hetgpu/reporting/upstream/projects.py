"""The project of the library at fault, and the requests of its tracker. Pure.

The headings in `templates/` are the fields of the upstreams' own forms in `.github/ISSUE_TEMPLATE`:

- bug_report.md of openucx/ucx and of open-mpi/ompi; UCC gets the form of UCX
- ISSUE.yaml of NVIDIA/nccl
- issue_report.yml of ROCm/rccl, its system fields merged
- bug-report.yml of pytorch/pytorch
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Project:
    """An upstream project: its `template` in `templates/`, its tracker, and the facts of nodes that it wants first."""

    name: str
    template: str
    tracker: str
    facts: tuple[str, ...] = ()


UCX = Project("UCX", "openucx", "https://github.com/openucx/ucx/issues", ("ucx", "ucx.configure", "ucx.modules"))
UCC = Project("UCC", "openucx", "https://github.com/openucx/ucc/issues", ("ucc", "ucx", "ucc.layers"))
OPENMPI = Project("Open MPI", "openmpi", "https://github.com/open-mpi/ompi/issues", ("openmpi", "openmpi.pml"))
MPICH = Project("MPICH", "plain", "https://github.com/pmodels/mpich/issues", ("mpich", "mpich.device"))
LIBFABRIC = Project("libfabric", "plain", "https://github.com/ofiwg/libfabric/issues", ("libfabric",))
NCCL = Project("NCCL", "nccl", "https://github.com/NVIDIA/nccl/issues", ("nccl", "cuda.driver", "cuda.version"))
RCCL = Project("RCCL", "rccl", "https://github.com/ROCm/rccl/issues", ("rccl", "rocm.version", "rocm.arch"))
PYTORCH = Project(
    "PyTorch", "pytorch", "https://github.com/pytorch/pytorch/issues", ("torch", "torch.cuda", "torch.hip")
)
NO_PROJECT = Project("", "plain", "")

# Patterns of libraries and signature keys. The first match wins, so narrower patterns come first.
_PATTERNS: tuple[tuple[str, Project], ...] = (
    (r"libuc[tpsm]|\bucx\b|ucp_|uct_|PROTO_INFO", UCX),
    (r"libucc|\bucc\b|ucc_", UCC),
    (r"librccl|rccl", RCCL),
    (r"libnccl|nccl", NCCL),
    (r"libfabric|\bofi\b|fi_", LIBFABRIC),
    (r"libtorch|c10|gloo|torch", PYTORCH),
    (r"mpich|MPIDI?_|hydra", MPICH),
    (r"libmpi|openmpi|libopen-|mca_|prte|prted|orted|PMIX", OPENMPI),
)


# The place in the key of a failure that a program, or a script, reports of itself.
_OF_PROGRAM = re.compile(r"@(?:program$|[^@!]+\.py(?:!|$))")
# An object at fault that is no library: the program of the ranks.
_LIBRARY = re.compile(r"\.so\b|^lib")


def find_project(library: str | None, key: str, stack: str) -> Project:
    """Return the project of a failure: by the library at fault, by the signature's key, else by the MPI that ran.

    A failure of the program itself is of no project here, whatever words it has.
    """
    if key.endswith("@program"):
        return NO_PROJECT
    for text in (library or "", key):
        for pattern, found in _PATTERNS:
            if text and re.search(pattern, text):
                return found
    if _OF_PROGRAM.search(key) or (library and not _LIBRARY.search(library)):
        return NO_PROJECT
    return next(
        (found for name, found in (("Open MPI", OPENMPI), ("MPICH", MPICH), ("torch", PYTORCH)) if name in stack),
        NO_PROJECT,
    )


def slug(key: str) -> str:
    """Convert the key of a signature to a file name."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", key).strip("-.")[:80] or "failure"


def file_names(keys: Sequence[str]) -> dict[str, str]:
    """Return a file name per key; number the keys whose names would be equal."""
    made: dict[str, str] = {}
    for key in keys:
        name, number = slug(key), 2
        while name in made.values():
            name, number = f"{slug(key)}-{number}", number + 1
        made[key] = name
    return made
