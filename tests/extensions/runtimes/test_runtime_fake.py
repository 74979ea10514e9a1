"""The fake stands in for a runtime wherever one is asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_hetgpu.errors import LaunchError, NotHere
from pytest_hetgpu.extensions.runtimes.base import testinfra_host as host_of
from pytest_hetgpu.extensions.runtimes.fake import FakeRuntime
from pytest_hetgpu.model.job import Command

COMMAND = Command(("mpirun", "-np", "2"), {"A": "1"})


def test_the_function_decides_code_and_output(tmp_path: Path) -> None:
    asked = []

    def answer(command: Command) -> tuple[int | None, bytes]:
        asked.append(command)
        return 7, b"printed\n"

    result = FakeRuntime(answer).run(COMMAND, output=tmp_path / "log", timeout=5)
    assert asked == [COMMAND]
    assert (result.argv, result.returncode, result.timed_out) == (COMMAND.argv, 7, False)
    assert Path(result.output).read_bytes() == b"printed\n"


def test_no_return_code_is_a_timeout(tmp_path: Path) -> None:
    result = FakeRuntime(lambda command: (None, b"")).run(COMMAND, output=tmp_path / "log", timeout=5)
    assert (result.returncode, result.timed_out, result.seconds) == (None, True, 5)


def test_what_the_function_raises_comes_out(tmp_path: Path) -> None:
    def answer(command: Command) -> tuple[int | None, bytes]:
        raise LaunchError(f"cannot start {command.argv[0]}")

    with pytest.raises(LaunchError, match="mpirun"):
        FakeRuntime(answer).run(COMMAND, output=tmp_path / "log", timeout=5)


def test_the_node_is_as_described() -> None:
    node = FakeRuntime(lambda command: (0, b""), missing=["/dev/kfd"], up=["lo", "hsn0"])
    assert node.absent(["/dev/dri", "/dev/kfd"]) == ("/dev/kfd",)
    assert node.interfaces() == ("lo", "hsn0")
    with pytest.raises(NotHere):
        node.host()


def test_without_testinfra_a_host_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testinfra", None)
    with pytest.raises(NotHere, match="pip install pytest-testinfra"):
        host_of("local://")
