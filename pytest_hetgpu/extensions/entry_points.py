"""Variants that other installed packages add: entry points of the groups `pytest_hetgpu.FAMILY`.

The folders of `sys.path` are asked for them directly: importlib.metadata would cost 60 ms where there are none, this
costs 1. What is not in a folder (a package in a zip archive, an importer of its own) is not seen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

_GROUP = "pytest_hetgpu."
_ANNOUNCED = f"[{_GROUP}".encode()
_METADATA = (".dist-info", ".egg-info")
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Extension:
    """One entry point: `target` is `package.module` or `package.module:Class`, `package` whose it is, with version."""

    family: str
    name: str
    target: str
    package: str

    def __str__(self) -> str:
        return f"{self.name!r} of {self.package} ({self.target})"


@cache
def extensions() -> tuple[Extension, ...]:
    """All of them by family, name and package; of a package that is there twice only the first. Imports none."""
    found: dict[str, list[Extension]] = {}
    for folder in dict.fromkeys(sys.path):
        for name, data in _announced(folder or os.curdir):
            package, version = _named(name)
            whole = f"{package} {version}".strip()
            found.setdefault(package.lower().replace("_", "-"), list(_entries(data, whole)))
    flat = (entry for entries in found.values() for entry in entries)
    return tuple(sorted(flat, key=lambda entry: (entry.family, entry.name, entry.package)))


def _announced(folder: str) -> Iterator[tuple[str, bytes]]:
    """Metadata folders with entry points for us: their names, and what their `entry_points.txt` holds."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(_METADATA))
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123 - 4 x quicker
                data = file.read(_MOST)
        except OSError:
            continue
        if _ANNOUNCED in data:
            yield name, data


def _named(folder: str) -> tuple[str, str]:
    """`hetgpu-boxes` and `1.0` of `hetgpu_boxes-1.0.dist-info`; an egg-info may have no version."""
    name, _, version = folder.rpartition(".")[0].partition("-")
    return name.replace("_", "-"), version.partition("-")[0]


def _entries(data: bytes, package: str) -> Iterator[Extension]:
    """https://packaging.python.org/en/latest/specifications/entry-points: sections, and `name = target [extras]`."""
    family = ""
    for row in data.decode("utf-8", "replace").splitlines():
        line = row.strip()
        if line.startswith("["):
            group = line.strip("[] ")
            family = group.removeprefix(_GROUP) if group.startswith(_GROUP) else ""
        elif family and "=" in line and not line.startswith(("#", ";")):
            name, _, target = line.partition("=")
            yield Extension(family, name.strip(), target.partition("[")[0].replace(" ", ""), package)
