"""Lookup of extensions: each is a file that is imported on first use, or an entry point of another package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.entry_points import Extension, extensions
from pytest_hetgpu.model.messages import known

T = TypeVar("T")

FAMILIES = (
    *("hardware", "fabrics", "stacks", "transports", "launchers", "workloads", "runtimes", "signatures"),
    *("probes", "readers", "inventories"),
)
_HOME = "pytest_hetgpu.extensions"
_ROWS = "rows"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,79}")


@cache
def names(family: str) -> tuple[str, ...]:
    """Return the sorted names of the extensions of a type, without importing them.

    They are its modules except `base` and private ones, and the entry points of other packages.
    """
    return tuple(sorted((*shipped(family), *_added(family))))


@cache
def shipped(family: str) -> tuple[str, ...]:
    """Return the names that this package itself has: of modules, and of files in the folder `rows`."""
    return tuple(sorted(_modules(family) | _files(family)))


def _modules(family: str) -> set[str]:
    package = importlib.import_module(f"{_HOME}.{family}")
    found = (module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg)
    return {name for name in found if name != "base" and not name.startswith("_")}


def _files(family: str) -> set[str]:
    package = importlib.import_module(f"{_HOME}.{family}")
    return {path.stem for place in package.__path__ for path in Path(place, _ROWS).glob("*.yaml")}


@cache
def _without_code(family: str) -> frozenset[str]:
    return frozenset(_files(family) - _modules(family))


def added() -> tuple[Extension, ...]:
    """Return the valid extensions of other packages, of all types."""
    return tuple(one for family in FAMILIES for one in _added(family).values())


def extension_errors() -> tuple[str, ...]:
    """Return the errors of extensions of other packages: names that are taken or invalid. These are not used."""
    return tuple(_extension_errors())


def unknown_entry_points() -> tuple[Extension, ...]:
    """Return entry points whose group is no extension type: misspelt, or for another release of this package."""
    return tuple(one for one in extensions() if one.family not in FAMILIES)


def find(family: str, name: str, kind: type[T]) -> type[T]:
    """Return the class of type `kind` that the file `family/name.py`, or an entry point of another package, defines.

    Raises UsageError with the known names if there is none, or with the package whose extension is invalid.
    """
    if name not in names(family):
        raise UsageError(f"unknown {_singular(family)} {name!r} {known(name, names(family))}")
    foreign = _added(family).get(name)
    for found in _foreign_classes(foreign) if foreign else _classes(family, name):
        if issubclass(found, kind):
            if foreign and inspect.isabstract(found):
                lacks = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
                raise UsageError(f"{_singular(family)} {foreign}: its {found.__name__} lacks {lacks}")
            return found
    if foreign:
        raise UsageError(f"{_singular(family)} {foreign}: it defines no {kind.__name__} ({kind.__module__})")
    raise TypeError(f"{_HOME}.{family}.{name} defines no {kind.__name__}")


def check(family: str, name: str) -> None:
    """Raise UsageError, naming the package, if its extension cannot be imported. Shipped ones are not checked."""
    foreign = _added(family).get(name)
    if foreign:
        _foreign_classes(foreign)


@cache
def _classes(family: str, name: str) -> tuple[type, ...]:
    """Return the classes of a module; without one, the parser of a file of rules."""
    if name in _without_code(family):
        from pytest_hetgpu.extensions.signatures.engine.rules import row_parser

        return (row_parser(name),)
    return _own(f"{_HOME}.{family}.{name}")


@cache
def _foreign_classes(foreign: Extension) -> tuple[type, ...]:
    module, _, name = foreign.target.partition(":")
    try:
        if not name:
            return _own(module)
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # an import may raise anything
        from pytest_hetgpu.extensions.moved_imports import advice

        reason = f"{type(error).__name__}: {error}"
        old = "".join(f"\n  {line}" for line in advice(module, error))
        more = f"; it was written for an earlier pytest-hetgpu, change its imports:{old}" if old else ""
        raise UsageError(f"{_singular(foreign.family)} {foreign} cannot be imported: {reason}{more}") from error
    return (found,) if isinstance(found, type) else ()


def _own(module: str) -> tuple[type, ...]:
    """Return the classes that a module itself defines."""
    values = vars(importlib.import_module(module)).values()
    return tuple(value for value in values if isinstance(value, type) and value.__module__ == module)


@cache
def _added(family: str) -> dict[str, Extension]:
    found = [one for one in extensions() if one.family == family and family in FAMILIES]
    if not found:
        return {}
    often, taken = Counter(one.name for one in found), shipped(family)
    return {one.name: one for one in found if often[one.name] == 1 and one.name not in taken and _fit(one.name)}


def _extension_errors() -> Iterator[str]:
    first: dict[tuple[str, str], Extension] = {}
    for one in extensions():
        if one.family not in FAMILIES:
            continue
        noun = _singular(one.family)
        other = first.setdefault((one.family, one.name), one)
        if one.name in shipped(one.family):
            own = f"pytest_hetgpu/extensions/{one.family}/{one.name}.py"
            yield f"{noun} {one} has the name of one that pytest-hetgpu has ({own}): rename it there, or uninstall it"
        elif other is not one:
            yield f"{noun} {one} and {other} have one name; uninstall one of the two"
        elif not _fit(one.name):
            yield f"{noun} {one}: a name has only letters, digits and _ . + - (at most 80), and is not 'base'"


def _fit(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and name != "base"


def _singular(family: str) -> str:
    return "inventory" if family == "inventories" else family.rstrip("s")
