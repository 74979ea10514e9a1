"""A runtime of another package: its settings may hold secrets, and its mistakes cost nobody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]
Install = Callable[..., Path]

RUNTIME = """\
from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.base import NodeProvider
from pytest_hetgpu.extensions.shapes import Shape, Text


class CrateSettings(Shape):
    api_token: Text = ""


class Crates(NodeProvider):
    settings = CrateSettings
    site_settings = CrateSettings

    @classmethod
    def open(cls, node, deployment):
        raise ProvisionError(node.name, f"refused: {cls.settings_of(node.hardware).api_token}")
"""
ENTRY = "[pytest_hetgpu.runtimes]\n{name} = crates\n"
MATRIX = """\
name: crates
hardware:
  crate: {{runtime: {runtime}, {settings}mpi: {{stack: openmpi-5, prefix: {prefix}}}}}
axes:
  placement: {{one: [crate]}}
  transport: {{ob1-tcp: {{family: ob1}}}}
  workload: {{barrier: {{}}}}
"""
GIVEN, AT_SITE = "hunter2SuperSecretXYZ", "siteSecretABC123xyz"


@pytest.fixture
def write(pytester: pytest.Pytester, stacks: Path) -> Callable[..., None]:
    """Write a matrix with a kind of node of that runtime."""

    def put(runtime: str, settings: str = "") -> None:
        text = MATRIX.format(runtime=runtime, settings=settings, prefix=stacks / "openmpi-5")
        (pytester.path / "crates.yaml").write_text(text)

    return put


def hetgpu(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "pytest_hetgpu.cli", *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("inventory", ["", f'crates: {{"*": {{api_token: {AT_SITE}}}}}\n'])
def test_a_secret_in_its_settings_is_shown_nowhere(
    run_pytest: Run, install: Install, pytester: pytest.Pytester, write: Callable[..., None], inventory: str
) -> None:
    install("hetgpu-crates", {"crates.py": RUNTIME}, ENTRY.format(name="crates"))
    write("crates", f"crates: {{api_token: {GIVEN}}}, ")
    (pytester.path / "hosts.yaml").write_text(f"hardware: {{crate: [crate1]}}\n{inventory}")
    done = run_pytest(
        *("--hetgpu-matrix", "crates.yaml", "--hetgpu-inventory", "hosts.yaml", "--junitxml", "own.xml"),
        *("-p", "no:xdist"),
    )
    assert done.ret == 1
    assert "refused: " in done.stdout.str()
    written = [
        path for path in (pytester.path / "reports").rglob("*") if path.is_file() and ".private" not in path.parts
    ]
    texts = [done.stdout.str(), done.stderr.str(), *(path.read_text(errors="replace") for path in written)]
    texts.append((pytester.path / "own.xml").read_text())
    assert [text for text in texts if GIVEN in text or AT_SITE in text] == []


def test_it_cannot_have_settings_under_a_key_of_all_hardware(
    run_pytest: Run, install: Install, write: Callable[..., None]
) -> None:
    install("hetgpu-crates", {"crates.py": RUNTIME}, ENTRY.format(name="image"))
    write("image", "image: foo, ")
    done = run_pytest("--hetgpu-matrix", "crates.yaml")
    assert done.ret == 4
    told = "runtime 'image' has settings, and the key 'image' is one of every runtime: its package must rename it"
    assert told in done.stderr.str()


@pytest.mark.parametrize("broken", ["default_location", "shut"])
def test_its_mistakes_do_not_end_a_clean(install: Install, broken: str) -> None:
    text = RUNTIME + f"\n    @classmethod\n    def {broken}(cls, *_):\n        raise OSError('no crane')\n"
    install("hetgpu-crates", {"crates.py": text}, ENTRY.format(name="crates"))
    done = hetgpu("clean", "--json")
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("{")
    assert "runtime 'crates': OSError: no crane" in done.stdout + done.stderr


def test_a_clean_says_why_it_cannot_be_asked(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("hetgpu-crates", {"crates.py": "import no_such_module\n"}, ENTRY.format(name="crates"))
    monkeypatch.setenv("HETGPU_LEDGERS", str(tmp_path / "ledgers"))
    program = (
        "from pytest_hetgpu.cluster.cleanup.targets import target_of\n"
        "from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location\n"
        "target_of(Location('crate', 'crate1'))\n"
    )
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "no runtime that is installed looks at a place of the kind 'crate'" in last
    assert "No module named 'no_such_module'" in last
