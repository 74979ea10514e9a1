"""The laws of the code: the order of imports, the size of files and functions, docstrings, lint and types."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_hetgpu.extensions.registry import FAMILIES, names
from pytest_hetgpu.extensions.signatures.engine.rows import names as rule_files
from pytest_hetgpu.model.old_spellings import Renamed
from tests.xdist_here import has_xdist

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pytest_hetgpu"

#: The packages in one order. A package imports what stands further right, and itself; packages of one group do not
#: import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__", "api", "plugin"),
    ("newhooks",),
    ("cli", "session"),
    ("reporting",),
    ("execution",),
    ("cluster",),
    ("analysis",),
    ("planning",),
    ("config",),
    ("extensions", "store"),
    ("model", "errors", "_version"),
)
#: Programs that are copied to nodes. They import nothing of the package, and nothing imports them.
REMOTE = "remote"
MOST_ENTRIES = 18
#: Modules and packages that may import pytest, and those that may start processes or open sockets.
PYTEST = {"newhooks", "plugin", "session"}
WORLD = {"subprocess", "socket", "docker", "testinfra", "psutil"}
BORDER = ("pytest_hetgpu.cluster.", "pytest_hetgpu.extensions.runtimes.", "pytest_hetgpu.remote.")

LONGEST_FILE = 500
LONGEST_FUNCTION = 60


class Import(NamedTuple):
    """One import, wherever it stands in its file: `of` is the module or package that is loaded."""

    by: str
    of: str
    line: int


def module_name(path: Path) -> str:
    """`pytest_hetgpu.config.matrix.source`; a package by its own name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the package by its name."""
    return {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def imported(by: str, node: ast.AST) -> Iterator[Import]:
    """What one statement imports: for `from a import b` the module a.b where there is one, else a."""
    if isinstance(node, ast.Import):
        yield from (Import(by, alias.name, node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{by}:{node.lineno} imports relatively"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield Import(by, inner if inner in trees() else str(node.module), node.lineno)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        yield from (Import(by, str(arg.value), node.lineno) for arg in node.args if isinstance(arg, ast.Constant))


@cache
def imports() -> tuple[Import, ...]:
    """Every import of the package: at the top, in functions, and those that only types need."""
    return tuple(one for name, tree in trees().items() for node in ast.walk(tree) for one in imported(name, node))


def ours(name: str) -> str:
    """A module of ours without the package's name, which stands alone for the package itself."""
    return name.removeprefix("pytest_hetgpu.")


def package(name: str) -> str:
    """The first part: `config` of `pytest_hetgpu.config.matrix.source`; `__init__` of the package itself."""
    return "__init__" if name == "pytest_hetgpu" else ours(name).partition(".")[0]


OURS = tuple(one for one in imports() if one.of.partition(".")[0] == "pytest_hetgpu")
LEVELS = {name: level for level, group in enumerate(LAYERS) for name in group}


def test_there_is_something_to_look_at() -> None:
    assert len(trees()) > 50
    assert len(OURS) > 100
    assert {("pytest_hetgpu.planning.matrix_set", "pytest_hetgpu.config.inventory.inventory")} <= {
        one[:2] for one in OURS
    }
    assert any(one.of == "testinfra" for one in imports())


def test_the_top_level_is_small() -> None:
    entries = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert entries - set(LEVELS) == set()
    assert len(entries - {"_version"}) + 1 <= MOST_ENTRIES  # and `remote`, which is no package


def test_imports_go_down() -> None:
    def upward(one: Import) -> bool:
        by, of = package(one.by), package(one.of)
        return of not in (by, "_version") and LEVELS[by] >= LEVELS[of]

    inside = [one for one in OURS if REMOTE not in (package(one.by), package(one.of))]
    assert [f"{ours(one.by)} imports {ours(one.of)}" for one in inside if upward(one)] == []


def private(name: str) -> str | None:
    """The package that a name with a `_` in it is private to; None if no part of it is private."""
    parts = name.split(".")
    found = (at for at, part in enumerate(parts) if part.startswith("_"))
    return ".".join(parts[: next(found, 0)]) or None


def imported_names() -> Iterator[tuple[str, str]]:
    """Every name that a module of the package imports from another one, as (module, dotted name)."""
    for by, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pytest_hetgpu"):
                yield from ((by, f"{node.module}.{alias.name}") for alias in node.names)


def test_what_is_private_stays_in_its_package() -> None:
    def allowed(by: str, of: str) -> bool:
        owner = private(of)
        return owner in (None, "pytest_hetgpu") or f"{by}.".startswith(f"{owner}.")

    assert sorted(f"{ours(by)} imports {ours(of)}" for by, of in imported_names() if not allowed(by, of)) == []


def test_no_extension_imports_a_variant() -> None:
    assert {f"pytest_hetgpu.extensions.{family}" for family in FAMILIES} <= set(trees())
    variants = {f"pytest_hetgpu.extensions.{family}.{name}" for family in FAMILIES for name in names(family)}
    files = {f"pytest_hetgpu.extensions.signatures.{name}" for name in rule_files()}
    assert variants - files <= set(trees())
    inside = [one for one in OURS if package(one.by) == "extensions"]
    assert [one for one in inside if one.of in variants and not one.by.endswith("__main__")] == []


def test_only_the_plugin_its_hooks_and_the_session_import_pytest() -> None:
    found = {package(one.by) for one in imports() if one.of.partition(".")[0] in ("pytest", "_pytest")}
    assert found == PYTEST
    assert not any(one.of.startswith("_pytest") for one in imports())


def test_only_the_border_starts_processes_and_opens_sockets() -> None:
    touching = [one for one in imports() if one.of.partition(".")[0] in WORLD]
    assert touching
    assert [one for one in touching if not one.by.startswith(BORDER)] == []


def test_remote_programs_and_the_package_import_nothing_of_each_other() -> None:
    assert [one for one in OURS if REMOTE in (package(one.of), package(one.by))] == []
    assert any(package(name) == REMOTE for name in trees())


def circles() -> Iterator[list[str]]:
    """Every circle of imports that is found on the way from module to module."""
    edges: dict[str, set[str]] = {}
    for one in OURS:
        if one.by != one.of:
            edges.setdefault(one.by, set()).add(one.of)
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> Iterator[list[str]]:
        if name in path:
            yield [*path[path.index(name) :], name]
        elif name not in done:
            for other in sorted(edges.get(name, ())):
                yield from walk(other, [*path, name])
            done.add(name)

    for name in sorted(edges):
        yield from walk(name, [])


def test_no_import_circles_not_even_for_types() -> None:
    assert [" -> ".join(map(ours, circle)) for circle in circles()] == []


def test_modules_of_tests_have_names_of_their_own() -> None:
    """Their folders are no packages: pytest would take two of one name for the same."""
    found: dict[str, list[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.setdefault(path.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_files_stay_short() -> None:
    lines = {name: len((ROOT / f"{name.replace('.', '/')}.py").read_text().splitlines()) for name in files()}
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}


def files() -> list[str]:
    """Modules that are files of their own name."""
    return [name for name in trees() if (ROOT / f"{name.replace('.', '/')}.py").exists()]


def test_functions_stay_short() -> None:
    functions = (
        (name, node)
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    lengths = {f"{name}.{node.name}": (node.end_lineno or 0) - node.lineno + 1 for name, node in functions}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def public(name: str) -> bool:
    return not name.startswith("_")


def documented(cls: type, member: str) -> bool:
    """Whether a member needs a docstring: old names stand for others."""
    return public(member) and not isinstance(vars(cls)[member], Renamed)


def undocumented_in(name: str) -> Iterator[str]:
    """What has no docstring, neither its own nor its base's; hooks of pytest are documented by pytest."""
    module = importlib.import_module(name)
    for key, value in vars(module).items():
        if not public(key) or getattr(value, "__module__", None) != name:
            continue
        if inspect.isfunction(value) and not key.startswith("pytest_") and not inspect.getdoc(value):
            yield f"{name}.{key}"
        if inspect.isclass(value):
            if not value.__doc__:
                yield f"{name}.{key}"
            members = ((member, getattr(value, member)) for member in vars(value) if documented(value, member))
            for member, found in members:
                documentable = inspect.isroutine(found) or isinstance(vars(value)[member], property)
                hook = member.startswith("pytest_")
                if documentable and not hook and not inspect.getdoc(vars(value)[member]) and not inspect.getdoc(found):
                    yield f"{name}.{key}.{member}"


def test_everything_public_has_a_docstring() -> None:
    assert [name for name, tree in trees().items() if not ast.get_docstring(tree)] == []
    modules = [name for name in trees() if package(name) != REMOTE and public(name.rpartition(".")[2])]
    if not has_xdist():
        modules = [name for name in modules if not name.startswith("pytest_hetgpu.session.xdist.")]
    assert [found for name in modules for found in undocumented_in(name)] == []


def test_programs_are_documented_too() -> None:
    found = [
        f"{name}.{node.name}"
        for name, tree in trees().items()
        if package(name) == REMOTE
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and public(node.name) and not ast.get_docstring(node)
    ]
    assert found == []


Lacking = Callable[[str, str], None]


def check(lacking: Lacking, tool: str, *arguments: str) -> None:
    if importlib.util.find_spec(tool) is None:
        lacking("lint", f"{tool} is not installed: pip install {tool}")
    done = subprocess.run(
        [sys.executable, "-m", tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.lint
@pytest.mark.parametrize("command", ["check", "format --check"])
def test_ruff(lacking: Lacking, command: str) -> None:
    check(lacking, "ruff", *command.split(), "--no-cache", "--output-format", "concise", ".")


@pytest.mark.lint
def test_mypy(lacking: Lacking) -> None:
    check(lacking, "mypy")


@pytest.mark.lint
def test_codespell(lacking: Lacking) -> None:
    folders = ("pytest_hetgpu", "tests", "scenarios", "examples", "benchmarks", "requirements")
    sources = [str(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    check(lacking, "codespell_lib", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "bootstrap.py", *sources)
