"""Whether pytest-xdist is installed: its module has the name of a folder of tests."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def has_xdist() -> bool:
    try:
        version("pytest-xdist")
    except PackageNotFoundError:
        return False
    return True
