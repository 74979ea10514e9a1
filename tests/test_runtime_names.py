"""A runtime is one place: no module but its own, and the texts of logs and sources, names one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "pytest_hetgpu"
#: `local` and `ssh` are words of the language; these are names of runtimes, and of programs that belong to one.
NAMES = re.compile(r"docker|podman|slurm|kubernetes|kubectl|runai|apptainer", re.IGNORECASE)
#: Runtimes themselves; where hosts are found; questions to nodes; texts of logs; launchers of one scheduler.
OWNERS = tuple(f"extensions/{family}/" for family in ("runtimes", "inventories", "probes", "signatures", "launchers"))
FREE = (*OWNERS, "remote/")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every identifier, import and string literal of a module with its line; no docstrings."""
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str | bytes) and id(node) not in documentation:
                yield line, node.value if isinstance(node.value, str) else node.value.decode(errors="replace")
        elif isinstance(node, ast.ImportFrom):
            yield line, str(node.module)
        else:
            words = (getattr(node, name, None) for name in ("id", "attr", "name", "arg", "asname", "rest"))
            yield from ((line, word) for word in words if isinstance(word, str))


def named(source: str) -> list[str]:
    return [f"{line}: {text[:60]}" for line, text in texts(ast.parse(source)) if NAMES.search(text)]


def test_no_other_module_names_a_runtime() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    others = {name: path for name, path in modules.items() if not name.startswith(FREE)}
    assert len(others) > 100
    found = {name: hits for name, path in others.items() if (hits := named(path.read_text(encoding="utf-8")))}
    assert found == {}
    assert not [name for name in others if NAMES.search(name)]


@pytest.mark.parametrize(
    "source",
    [
        "import docker",
        "from a.b import Slurm",
        "from a.kubernetes import b",
        "import a as kubectl",
        "podman = 1",
        "a.runai",
        "def slurm_of(): ...",
        "class Docker: ...",
        "def f(docker): ...",
        "f(docker=1)",
        "a = 'x@slurm'",
        "a = f'{b} on Kubernetes'",
        "a = b'Dockerfile'",
        "for a in apptainer: ...",
    ],
)
def test_each_way_to_name_one_is_seen(source: str) -> None:
    assert named(source)


def test_documentation_may_name_one() -> None:
    assert not named('"""Of docker."""\n# slurm\nclass A:\n    """As kubectl."""\n    b = 1\n    """Of podman."""\n')
