"""Extensions of other installed packages: entry points of the groups `pytest_hetgpu.FAMILY`.

The folders of `sys.path` are searched directly. This takes 1 ms without extensions, importlib.metadata 60 ms. Packages
that are not in a folder (a zip archive, a custom importer) are not found.
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
    """One entry point: `target` is `package.module` or `package.module:Class`, `package` its package and version."""

    family: str
    name: str
    target: str
    package: str

    def __str__(self) -> str:
        return f"{self.name!r} of {self.package} ({self.target})"


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all entry points by family, name and package, without importing them.

    If a package is installed twice, the first one counts.
    """
    found: dict[str, list[Extension]] = {}
    for folder in dict.fromkeys(sys.path):
        for name, data in _announced(folder or os.curdir):
            package, version = _named(name)
            label = f"{package} {version}".strip()
            found.setdefault(package.lower().replace("_", "-"), list(_entries(data, label)))
    flat = (entry for entries in found.values() for entry in entries)
    return tuple(sorted(flat, key=lambda entry: (entry.family, entry.name, entry.package)))


def _announced(folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield metadata folders with entry points for this package: their names, and the text of `entry_points.txt`."""
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
    """Parse `hetgpu-boxes` and `1.0` from `hetgpu_boxes-1.0.dist-info`; an egg-info may have no version."""
    name, _, version = folder.rpartition(".")[0].partition("-")
    return name.replace("_", "-"), version.partition("-")[0]


def _entries(data: bytes, package: str) -> Iterator[Extension]:
    """Parse entry points: sections, and `name = target [extras]`.

    https://packaging.python.org/en/latest/specifications/entry-points
    """
    family = ""
    for row in data.decode("utf-8", "replace").splitlines():
        line = row.strip()
        if line.startswith("["):
            group = line.strip("[] ")
            family = group.removeprefix(_GROUP) if group.startswith(_GROUP) else ""
        elif family and "=" in line and not line.startswith(("#", ";")):
            name, _, target = line.partition("=")
            yield Extension(family, name.strip(), target.partition("[")[0].replace(" ", ""), package)
