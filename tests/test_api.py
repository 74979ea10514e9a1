"""The names for extension packages: `pytest_hetgpu.api` has exactly those of its tables, and imports them late."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hetgpu import api
from pytest_hetgpu.extensions.registry import FAMILIES

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs" / "how-to" / "adding-an-engine.md"
BASES = re.compile(r"`pytest_hetgpu\.(\w+)`")


def test_everything_promised_is_there() -> None:
    assert sorted(api.__all__) == api.__all__
    for name in api.__all__:
        assert getattr(api, name) is not None
    assert set(api.__all__) == set(api._HOMES)


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse(inspect.getsource(api))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: str(node.module).removeprefix("pytest_hetgpu.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == api._HOMES


def test_anything_else_is_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = api.nonsense


def test_it_alone_imports_nothing_heavy() -> None:
    program = "import sys, pytest_hetgpu.api; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith("pytest_hetgpu")}
    assert ours == {"pytest_hetgpu", "pytest_hetgpu._version", "pytest_hetgpu.api"}
    assert {"pytest", "pydantic", "yaml"}.isdisjoint(done.stdout.split())


def test_the_guide_names_a_base_class_of_it_for_each_extension_type() -> None:
    rows = [line.split("|") for line in GUIDE.read_text(encoding="utf-8").splitlines() if BASES.match(line)]
    groups = [group for row in rows for group in BASES.findall(row[0])]
    assert sorted(groups) == sorted(FAMILIES)
    bases = [name for row in rows for name in re.findall(r"`(\w+)`", row[2])]
    assert len(bases) == len(FAMILIES)
    assert set(bases) <= set(api.__all__)


def test_examples_import_only_public_names() -> None:
    found = {
        (path.name, str(node.module))
        for path in (ROOT / "examples").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pytest_hetgpu.")
    }
    assert found
    assert {name for _, name in found} == {"pytest_hetgpu.api"}
