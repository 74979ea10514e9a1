"""One class, one name: no two classes of the package share a name, unless both are variants of an extension type."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pytest_hetgpu.extensions.registry import FAMILIES, shipped

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pytest_hetgpu"


@cache
def classes() -> tuple[tuple[str, str, ast.ClassDef], ...]:
    """Return each class outside `remote` with its module, as `extensions.signatures.ucx`, and its name."""
    return tuple(_classes())


def _classes() -> Iterator[tuple[str, str, ast.ClassDef]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if not module.startswith("remote."):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from ((module, node.name, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def is_variant(module: str, node: ast.ClassDef) -> bool:
    """Return whether a class with a base class stands in the file of a variant of an extension type."""
    home, _, name = module.rpartition(".")
    package, _, family = home.rpartition(".")
    return package == "extensions" and family in FAMILIES and name in shipped(family) and bool(node.bases)


@cache
def shared() -> dict[str, frozenset[str]]:
    """Return the modules of each name that several classes have, if one of these is no variant."""
    found: dict[str, dict[str, bool]] = {}
    for module, name, node in classes():
        found.setdefault(name, {})[module] = is_variant(module, node)
    return {name: frozenset(of) for name, of in found.items() if len(of) > 1 and not all(of.values())}


def test_classes_are_found() -> None:
    names = {name for _, name, _ in classes()}
    assert {"Outcome", "LogParser", "RatedFinding"} <= names
    assert len(names) > 500


def test_variants_may_share_a_name() -> None:
    homes = {module for module, name, node in classes() if name == "Ucx" and is_variant(module, node)}
    assert {"extensions.signatures.ucx", "extensions.transports.ucx"} <= homes
    assert "Ucx" not in shared()


def test_no_two_classes_share_a_name() -> None:
    assert {name: sorted(of) for name, of in shared().items()} == {}
