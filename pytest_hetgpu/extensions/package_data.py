"""Data files of the installed package: the programs that run on nodes, scenarios and matrices."""

from __future__ import annotations

from pathlib import Path

#: The folder of the package.
PACKAGE = Path(__file__).resolve().parents[1]
#: The programs that run on nodes. They are copied there and import nothing of the package.
REMOTE = PACKAGE / "remote"


def packaged(name: str) -> Path:
    """Return a folder of data (`scenarios`, `matrices`): inside the package in a wheel, beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name
