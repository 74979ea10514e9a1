"""Whose bug it may be: the project of the library at fault, and what its tracker asks of a report. Pure.

The headings in `templates/` are the fields of these forms in `.github/ISSUE_TEMPLATE`: bug_report.md of openucx/ucx and
of open-mpi/ompi, ISSUE.yaml of NVIDIA/nccl, issue_report.yml of ROCm/rccl (its fields of the system together), and
bug-report.yml of pytorch/pytorch. UCC is given UCX's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Project:
    """An upstream: its `template` in `templates/`, where issues go, and which facts of nodes it wants first."""

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

# The first that a library, a signature's key or a family of transports speaks of; the narrower word first.
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


def find_project(library: str | None, key: str, stack: str) -> Project:
    """The project of a failure: by the library at fault, else by the signature's key, else by the MPI that ran."""
    for text in (library or "", key):
        for pattern, found in _PATTERNS:
            if text and re.search(pattern, text):
                return found
    return next(
        (found for name, found in (("Open MPI", OPENMPI), ("MPICH", MPICH), ("torch", PYTORCH)) if name in stack),
        NO_PROJECT,
    )


def slug(key: str) -> str:
    """A signature's key as a file's name."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", key).strip("-.")[:80] or "failure"


def file_names(keys: Sequence[str]) -> dict[str, str]:
    """A file's name for each key; keys whose names would be one are numbered."""
    made: dict[str, str] = {}
    for key in keys:
        name, number = slug(key), 2
        while name in made.values():
            name, number = f"{slug(key)}-{number}", number + 1
        made[key] = name
    return made
