"""Name and version of an MPI library from its version string (MPI_Get_library_version)."""

from __future__ import annotations

import re

from pytest_hetgpu.model.lazy_regex import lazy

_BANNER = lazy(r"\s*(?P<name>.*?)[\s:,]*\bv?(?P<version>\d+(?:\.\w+)+)")
_FILLING = lazy(r"\((?:R|TM)\)|\b(?:MPI VERSION|version|library|release|for Linux)\b|[:*]", re.IGNORECASE)


def parse_mpi_version(library: str) -> tuple[str, str]:
    """Return ("Open MPI", "5.0.11") for `Open MPI v5.0.11, package: ...`; ("", "") if it has no version."""
    found = _BANNER.match(library[:500])
    return (" ".join(_FILLING.sub(" ", found["name"]).split()), found["version"]) if found else ("", "")


def fact_name(vendor: str) -> str:
    """Return the fact that holds a library's version: `openmpi` for Open MPI."""
    return re.sub(r"[^a-z0-9]", "", vendor.lower())
