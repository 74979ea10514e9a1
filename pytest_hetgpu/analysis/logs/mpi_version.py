"""What an MPI library says of itself (MPI_Get_library_version) as a name and a version."""

from __future__ import annotations

import re

from pytest_hetgpu.model.lazy_regex import lazy

_BANNER = lazy(r"\s*(?P<name>.*?)[\s:,]*\bv?(?P<version>\d+(?:\.\w+)+)")
_FILLING = lazy(r"\((?:R|TM)\)|\b(?:MPI VERSION|version|library|release|for Linux)\b|[:*]", re.IGNORECASE)


def parse_mpi_version(library: str) -> tuple[str, str]:
    """("Open MPI", "5.0.11") of `Open MPI v5.0.11, package: ...`; ("", "") where there is no version in it."""
    found = _BANNER.match(library[:500])
    return (" ".join(_FILLING.sub(" ", found["name"]).split()), found["version"]) if found else ("", "")


def fact_name(vendor: str) -> str:
    """The name that a library's version has among facts: `openmpi` for Open MPI."""
    return re.sub(r"[^a-z0-9]", "", vendor.lower())
