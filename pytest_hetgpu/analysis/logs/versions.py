"""Versions of libraries as they print them in a log, and their warnings that a version does not fit.

A run with such a warning may pass by luck. Each form is the text that a library prints by itself. A plain `version
mismatch` counts only in a line with the level of a warning: programs print these words, too.
"""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.extensions.signatures.engine.versions import SAYINGS

MOST = 8
_LONGEST = 300

_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (subject, re.compile(pattern))
    for subject, pattern in (
        # ucp_context.c: `UCX  WARN  UCP API version is incompatible: required >= 1.20, actual 1.17.0 (loaded from ...)`
        ("UCX", r"\bUCX\s+(?:WARN|ERROR)\s+(.*\bversion\b.*\bincompatible\b.*|.*\bincompatible\b.*\bversion\b.*)"),
        ("UCC", r"\bUCC\s+(?:WARN|ERROR)\s+(.*\bversion\b.*\b(?:incompatible|mismatch)\b.*)"),
        # fabric.c and util_av.c of libfabric
        ("libfabric", r"\b(provider has unsupported FI version .*|Requested version is newer than library.*)"),
        # mca_base_component_repository.c of Open MPI, PMIx and PRRTE: a component of another release
        ("MCA", r'("\S+" uses an MCA interface that is not recognized .*)'),
        # net.cc of NCCL and RCCL
        (
            "NCCL",
            r"\b([A-Z]+/Plugin ?: .*\bv\d+ and lower are not supported.*)",
        ),
        ("NCCL", r"\bNCCL WARN (.*\bversion\b.*\b(?:mismatch|incompatible|not supported)\b.*)"),
        # cudaGetErrorString(cudaErrorInsufficientDriver), and its warning in PyTorch (torch/csrc/cuda)
        ("CUDA", r"\b(CUDA driver version is insufficient for CUDA runtime version)"),
        ("CUDA", r"(The NVIDIA driver on your system is too old.*)"),
        ("CUDA", r"(forward compatibility was attempted on non supported HW)"),
        ("CUDA", r"\b(with CUDA capability sm_\w+ is not compatible with the current PyTorch installation.*)"),
        # Cython and NumPy, of an extension that was built for another release: mpi4py, torch
        ("Python", r"\b(\S+ size changed, may indicate binary incompatibility.*)"),
        ("NumPy", r"(A module that was compiled using NumPy 1\.x cannot be run in\s?.*)"),
        # Any other library that prints a level
        (
            "a library",
            r"(?i)\bwarn(?:ing)?\b[:\]\s]*(.*\b(?:version|ABI|API) (?:mismatch|is incompatible|incompatibility)\b.*)",
        ),
    )
)
_RANKS_DIFFER = re.compile(r"0x[0-9a-f]+|\bpid \d+\b|\brank \d+\b")


class Versions:
    """Parser of the first version that each library prints; further versions are joined by commas."""

    triggers = tuple(dict.fromkeys(trigger.encode() for _, trigger, _ in SAYINGS))

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, None]] = {}

    def feed(self, line: LogLine) -> None:
        """Take one line that holds a trigger."""
        for name, trigger, pattern in SAYINGS:
            if trigger in line.text and (found := re.search(pattern, line.text[:1000])):
                seen = self._seen.setdefault(name, {})
                if len(seen) < 8:
                    seen.setdefault(found[1])

    @property
    def found(self) -> dict[str, str]:
        """Versions by library, like `{"ucx": "1.18.0", "openmpi": "5.0.11, 5.0.7"}`."""
        return {name: ", ".join(versions) for name, versions in self._seen.items()}


class Incompatibilities:
    """Parser of such warnings, each text once: `UCX: UCP API version is incompatible: ...`."""

    triggers = (
        b"incompatib",
        b"ersion mismatch",
        b"ABI mismatch",
        b"API mismatch",
        b"unsupported FI version",
        b"newer than library",
        b"MCA interface that is not recognized",
        b"and lower are not supported",
        b"NCCL WARN",
        b"driver version is insufficient",
        b"driver on your system is too old",
        b"forward compatibility was attempted",
        b"is not compatible with the current",
        b"compiled using NumPy 1.x",
    )

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def feed(self, line: LogLine) -> None:
        """Take one line that holds a trigger."""
        if len(self._seen) >= MOST:
            return
        for subject, form in _FORMS:
            if found := form.search(line.text[:2000]):
                text = _RANKS_DIFFER.sub("", " ".join(found[1].split()))
                self._seen.setdefault(f"{subject}: {text[:_LONGEST]}")
                return

    @property
    def found(self) -> tuple[str, ...]:
        """The warnings in the order of the log."""
        return tuple(self._seen)
