"""A variant is its file: found by name, imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.launchers.base import Launcher
from pytest_hetgpu.registry import FAMILIES, find, known, names, show
from pytest_hetgpu.transports.base import Transport
from pytest_hetgpu.transports.ucx import Ucx

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("family", FAMILIES)
def test_names_are_the_files_without_base_and_private_ones(family: str) -> None:
    files = (path.stem for path in (ROOT / "pytest_hetgpu" / family).glob("*.py"))
    assert names(family) == tuple(sorted(name for name in files if name != "base" and not name.startswith("_")))


def test_naming_variants_imports_none_of_them() -> None:
    program = (
        "import sys\nfrom pytest_hetgpu.registry import names\n"
        "assert 'ucx' in names('transports'); assert 'local' in names('runtimes')\n"
        "variants = ('pytest_hetgpu.transports.', 'pytest_hetgpu.runtimes.')\n"
        "print(*(name for name in sys.modules if name.startswith(variants)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_class_of_a_file_is_found() -> None:
    assert find("transports", "ucx", Transport) is Ucx  # type: ignore[type-abstract]


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UsageError) as caught:
        find("transports", "ucxx", Transport)  # type: ignore[type-abstract]
    assert (
        str(caught.value)
        == "unknown transport 'ucxx' (known: auto, gloo, nccl, ob1, ofi, shm, ucc, ucx; did you mean 'ucx'?)"
    )


def test_a_file_without_such_a_class_is_our_mistake() -> None:
    with pytest.raises(TypeError, match=r"pytest_hetgpu\.transports\.ucx defines no Launcher"):
        find("transports", "ucx", Launcher)  # type: ignore[type-abstract]


@pytest.mark.parametrize(
    ("found", "choices", "text"),
    [
        ("b", ["c", "a"], "(known: a, c)"),
        ("transprt", ["transport", "workload"], "(known: transport, workload; did you mean 'transport'?)"),
        ("x", [], "(known: none)"),
        ("x", [f"n{i}" for i in range(15)], "(known: n0, n1, n10, n11, n12, n13, n14, n2, n3, n4, n5, n6, ... 3 more)"),
    ],
)
def test_what_is_known(found: str, choices: list[str], text: str) -> None:
    assert known(found, choices) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "nothing"), ({}, "an empty map"), ({"a": 1}, "a map"), ([], "an empty list"), (["a"], "a list")),
        *(("a'b", '"a\'b"'), ("\x1b[31m", "'\\x1b[31m'"), ("x" * 100, "'" + "x" * 79 + "... (102 characters)")),
    ],
)
def test_a_value_is_shown_short_and_harmless(value: object, text: str) -> None:
    assert show(value) == text
