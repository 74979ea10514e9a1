"""Finds a family's variants: a variant is its file, imported when it is asked for."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from typing import TypeVar

from pytest_hetgpu.errors import UsageError

T = TypeVar("T")

FAMILIES = (
    *("hardware", "fabrics", "stacks", "transports", "launchers", "workloads", "runtimes", "judges", "signatures"),
    *("probes", "readers"),
)


@cache
def names(family: str) -> tuple[str, ...]:
    """Names of a family's variants, sorted: its files (no folders) but `base` and private ones. Imports none."""
    package = importlib.import_module(f"pytest_hetgpu.{family}")
    found = (module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg)
    return tuple(sorted(name for name in found if name != "base" and not name.startswith("_")))


def find(family: str, name: str, kind: type[T]) -> type[T]:
    """The class of type `kind` that the file `family/name.py` defines.

    Raises UsageError naming the known variants when there is no such file.
    """
    if name not in names(family):
        raise UsageError(f"unknown {family.rstrip('s')} {name!r} {known(name, names(family))}")
    for found in _classes(family, name):
        if issubclass(found, kind):
            return found
    raise TypeError(f"pytest_hetgpu.{family}.{name} defines no {kind.__name__}")


@cache
def _classes(family: str, name: str) -> tuple[type, ...]:
    module = importlib.import_module(f"pytest_hetgpu.{family}.{name}")
    values = vars(module).values()
    return tuple(value for value in values if isinstance(value, type) and value.__module__ == module.__name__)


def show(value: object) -> str:
    """A value from a user's file as a complaint names it: short, and in YAML's words."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a map" if value else "an empty map"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}... ({len(text):,} characters)"


def known(found: str, choices: Iterable[str], limit: int = 12) -> str:
    """`(known: a, b; did you mean 'a'?)`, for the end of a complaint about an unknown name."""
    import difflib

    everything = sorted(choices)
    shown = ", ".join(everything[:limit]) + (f", ... {len(everything) - limit} more" if len(everything) > limit else "")
    near = difflib.get_close_matches(found, everything, n=1)
    return f"(known: {shown or 'none'}{f'; did you mean {near[0]!r}?' if near else ''})"
