"""The extension package that the documents of the version before showed: only its imports must be changed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu import api
from pytest_hetgpu.extensions.moved_imports import moved
from pytest_hetgpu.extensions.moved_names import FAMILIES, MODULES, NAMES
from pytest_hetgpu.extensions.registry import FAMILIES as FAMILIES_NOW

OLD = Path(__file__).parents[1] / "data" / "old_extension"
ENTRIES = """\
[pytest_hetgpu.runtimes]
boxes = hetgpu_boxes.runtime
[pytest_hetgpu.launchers]
plain = hetgpu_boxes.launcher:Plain
[pytest_hetgpu.signatures]
frobd = hetgpu_boxes.frobd
"""
RUNTIME = [
    "from pytest_hetgpu.model import Node  ->  from pytest_hetgpu.api import Node",
    "from pytest_hetgpu.runtimes.agent import reached_by  ->  from pytest_hetgpu.api import reached_by",
    "from pytest_hetgpu.runtimes.base import Gathering  ->  from pytest_hetgpu.api import Deployment as Gathering",
    "from pytest_hetgpu.runtimes.base import Member  ->  from pytest_hetgpu.api import RemoteNode as Member",
    "from pytest_hetgpu.runtimes.base import MemberRuntime  ->  from pytest_hetgpu.api import "
    "NodeProvider as MemberRuntime",
]
FROBD = [
    "from pytest_hetgpu.signatures.reading.rules import Rule  ->  from pytest_hetgpu.api import MatchRule as Rule",
    "from pytest_hetgpu.signatures.reading.rules import RuleDialect  ->  from pytest_hetgpu.api import "
    "RuleParser as RuleDialect",
    "from pytest_hetgpu.signatures.base import Weight  ->  from pytest_hetgpu.api import Priority as Weight",
    "from pytest_hetgpu.told import Kind  ->  from pytest_hetgpu.api import Kind",
]

Run = Callable[..., pytest.RunResult]
Install = Callable[[str, dict[str, str], str], Path]


def module(name: str) -> str:
    return (OLD / f"{name}.txt").read_text(encoding="utf-8")


def with_changed_imports(source: str, lines: list[str]) -> str:
    """Change the imports of a module as the lines tell, and nothing else."""
    changes = dict(line.strip().split("  ->  ") for line in lines)
    rows = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom):
            each = [f"from {node.module} import {alias.name}" for alias in node.names]
            rows[node.lineno - 1] = "\n".join(changes.get(one, one) for one in each)
    return "\n".join(rows)


@pytest.fixture
def matrix(pytester: pytest.Pytester, stacks: Path) -> None:
    text = (OLD / "boxes.yaml").read_text(encoding="utf-8")
    (pytester.path / "boxes.yaml").write_text(text.replace("/opt/openmpi", str(stacks / "openmpi-5")))
    (pytester.path / "hosts.yaml").write_text("hardware: {box: [box1]}\n")


def boxes(change: Callable[[str], str] = str) -> dict[str, str]:
    modules = {f"hetgpu_boxes/{name}.py": change(module(name)) for name in ("runtime", "launcher", "frobd")}
    return {"hetgpu_boxes/__init__.py": "", **modules}


def test_the_data_is_what_the_documents_had() -> None:
    assert 'boxes = "hetgpu_boxes.runtime"' in module("pyproject")
    assert "MemberRuntime" in module("runtime")
    assert "certain=False" in module("frobd")


@pytest.mark.usefixtures("matrix")
def test_loading_it_prints_the_old_and_the_new_import_of_each_name(run_pytest: Run, install: Install) -> None:
    install("hetgpu-boxes", boxes(), ENTRIES)
    done = run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml")
    assert done.ret == 4
    said = done.stderr.str()
    assert "runtime 'boxes' of hetgpu-boxes 1.0 (hetgpu_boxes.runtime) cannot be imported: ImportError: " in said
    assert [line.strip() for line in said.splitlines() if " -> " in line][: len(RUNTIME)] == RUNTIME
    assert "ProvisionError" not in said  # it is still importable from pytest_hetgpu.errors
    assert "Traceback" not in said


@pytest.mark.usefixtures("matrix")
def test_with_its_imports_changed_as_printed_it_runs_its_cell(
    run_pytest: Run, install: Install, pytester: pytest.Pytester, tmp_path: Path
) -> None:
    def change(source: str) -> str:
        (tmp_path / "old.py").write_text(source)
        return with_changed_imports(source, list(moved(tmp_path / "old.py")))

    install("hetgpu-boxes", boxes(change), ENTRIES)
    done = run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml")
    done.assert_outcomes(passed=1)
    (job,) = (pytester.path / "reports" / "latest").resolve().glob("scenarios/*/job.json")
    assert json.loads(job.read_text())["job"]["nodes"][0]["hardware"]["runtime"] == "boxes"
    (pytester.path / "frobd.log").write_text("frobd: lost node7: link down\nfrobd: retry 1\n")
    command = (sys.executable, "-m", "pytest_hetgpu.cli", "explain", "frobd.log")
    told = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=False)
    assert "lost@frobd" in told.stdout


def test_a_log_parser_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "frobd.py").write_text(module("frobd"))
    assert sorted(moved(tmp_path / "frobd.py")) == sorted(FROBD)


@pytest.mark.usefixtures("matrix")
def test_imports_of_other_modules_of_the_package_are_told(run_pytest: Run, install: Install) -> None:
    modules = {"old_boxes/__init__.py": "", "old_boxes/runtime.py": "from old_boxes.more import x\n"}
    modules["old_boxes/more.py"] = "import pytest_hetgpu.told\nfrom pytest_hetgpu import registry\n"
    install("old-boxes", modules, "[pytest_hetgpu.runtimes]\nboxes = old_boxes.runtime\n")
    done = run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml")
    assert done.ret == 4
    assert "  import pytest_hetgpu.told  ->  import pytest_hetgpu.model.failure\n" in done.stderr.str()
    told = "from pytest_hetgpu import registry  ->  from pytest_hetgpu.extensions import registry"
    assert told in done.stderr.str()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from pytest_hetgpu.runtimes.base import Answer as A", "extensions.runtimes.base import CommandResult as A"),
        ("from pytest_hetgpu.carriage import Member", "model.transport_classes import Member"),
        ("from pytest_hetgpu.transports.ucx import Ucx", "extensions.transports.ucx import Ucx"),
        ("from pytest_hetgpu.workloads import allreduce", "extensions.workloads import allreduce"),
        ("from pytest_hetgpu.workloads.allreduce import Nothing", ""),
        ("from pytest_hetgpu.plan import plan", ""),
        ("from pytest_hetgpu.registry import OPEN", ""),
        ("from pytest_hetgpu.signatures import base", "extensions.signatures import base"),
    ],
)
def test_forms_of_imports(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "old.py").write_text(old)
    now = f"from pytest_hetgpu.{new}" if new else "no longer public"
    assert list(moved(tmp_path / "old.py")) == [f"{old}  ->  {now}"]


@pytest.mark.parametrize(
    "text", ["from pytest_hetgpu import Kind", "from pytest_hetgpu.errors import NotHere", "import pytest", "x = ("]
)
def test_imports_that_work_are_not_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "new.py").write_text(text)
    assert list(moved(tmp_path / "new.py")) == []


def test_every_new_place_is_one() -> None:
    package = Path(api.__file__).parent
    assert set(FAMILIES) == set(FAMILIES_NOW)
    for place in MODULES.values():
        path = package / place.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists()
    for names in NAMES.values():
        for found in names.values():
            home, _, name = found.rpartition(".")
            assert (
                name in api.__all__
                if home == "api"
                else re.search(
                    rf"(?m)^(class |def )?{name}\b",
                    (package / f"{home.replace('.', '/')}.py").read_text(encoding="utf-8"),
                )
            )
