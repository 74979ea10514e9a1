"""Advice on imports of an extension package that an earlier version of this package had."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pytest_hetgpu.extensions.moved_names import FAMILIES, MODULES, NAMES

_PACKAGE = "pytest_hetgpu"
_EXTENSIONS = "extensions"
_HERE = Path(__file__).resolve().parents[1]
_LONGEST = 1_000_000
#: A line of advice in a message.
LINE = re.compile(rf"\n  ((?:from|import) {_PACKAGE}[\w.* ]*  ->  [\w.* ]+)$", re.MULTILINE)


def advice(module: str, error: BaseException) -> list[str]:
    """Return a line `OLD IMPORT  ->  NEW IMPORT` for each old import of a module that cannot be imported.

    Files in the traceback of the error are read, too. Nothing is imported from them.
    """
    lines = (line for file in _sources(module, error) for line in moved(file))
    return list(dict.fromkeys(lines))


def moved(file: Path) -> Iterator[str]:
    """Return those lines for one source file; none for a file that cannot be read or parsed."""
    try:
        with file.open("rb") as source:
            tree = ast.parse(source.read(_LONGEST))
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(alias)
        elif isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] == _PACKAGE:
            for alias in node.names:
                yield from _name(str(node.module), alias)


def _module(alias: ast.alias) -> Iterator[str]:
    """Advise on `import pytest_hetgpu.OLD`; nothing if there still is such a module of that meaning."""
    package, _, old = alias.name.partition(".")
    if package != _PACKAGE or not old or (old not in MODULES and _exists(alias.name)):
        return
    now = _place(old)
    new = f"import {_PACKAGE}.{now}{_as(alias.asname)}" if now else "no longer public"
    yield f"import {alias.name}{_as(alias.asname)}  ->  {new}"


def _name(module: str, alias: ast.alias) -> Iterator[str]:
    """Advise on `from pytest_hetgpu.OLD import NAME`; nothing if that import still works."""
    old = module.partition(".")[2]
    inner = f"{old}.{alias.name}".lstrip(".")
    if _has(module, alias.name) and inner not in MODULES:
        return
    now = _now(old, inner, alias.name)
    if now:
        place, _, name = now.rpartition(".")
        renamed = alias.asname or (alias.name if name != alias.name else None)
        new = f"from {_PACKAGE}.{place} import {name}{_as(renamed)}"
    else:
        new = "no longer public"
    yield f"from {module} import {alias.name}{_as(alias.asname)}  ->  {new}"


def _now(old: str, inner: str, name: str) -> str:
    """Return the new place of a name, below this package; "" if there is none."""
    if now := _place(inner):
        return now
    module = _place(old)
    found = NAMES.get(old, {}).get(name, f"{module}.{name}" if module else "")
    place, _, short = found.rpartition(".")
    return found if found and (short == "*" or _has(f"{_PACKAGE}.{place}", short)) else ""


def _place(old: str) -> str:
    """Return the module that has an old one's names; "" if there is none. Shipped extensions kept their names."""
    beside = f"{_EXTENSIONS}.{old}" if old.partition(".")[0] in FAMILIES else ""
    return MODULES.get(old) or (beside if beside and _exists(f"{_PACKAGE}.{beside}") else "")


def _as(name: str | None) -> str:
    return f" as {name}" if name else ""


@cache
def _has(module: str, name: str) -> bool:
    """Return whether a module of this package has a name or a submodule of that name."""
    try:
        return hasattr(importlib.import_module(module), name) or _exists(f"{module}.{name}")
    except ImportError:
        return False


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _sources(module: str, error: BaseException) -> Iterator[Path]:
    """Yield the file of a module, then files outside this package in the traceback of an error."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # noqa: BLE001 - whatever a package above the module does when it is imported
        spec = None
    names = [spec.origin] if spec and spec.origin else []
    names += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    for file in dict.fromkeys(Path(name) for name in names if name.endswith(".py")):
        if not file.resolve().is_relative_to(_HERE):
            yield file
