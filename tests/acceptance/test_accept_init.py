"""`hetgpu init` in an empty folder, and the run of what it wrote."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.at_a_terminal import Terminal

pytestmark = pytest.mark.usefixtures("stacks")
INIT = (sys.executable, "-m", "pytest_hetgpu.cli", "init")


def init(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*INIT, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_runs_at_once(pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]) -> None:
    done = init(pytester.path)
    assert done.returncode == 0, done.stderr
    assert "MPI       openmpi-5: Open MPI 5.0.11 in " in done.stdout
    assert done.stdout.splitlines()[-1] == "run it    pytest --hetgpu-matrix hetgpu.yaml"
    ran = run_pytest("--hetgpu-matrix", "hetgpu.yaml", "-k", "openmpi-5 and auto and allreduce")
    assert ran.ret == 0
    ran.assert_outcomes(passed=1)


def test_what_is_there_is_replaced_by_force_only(pytester: pytest.Pytester) -> None:
    path = pytester.path / "hetgpu.yaml"
    path.write_text("mine\n")
    done = init(pytester.path, "--yes")
    assert done.returncode == 4
    assert done.stderr == "ERROR: hetgpu.yaml exists already: --force replaces what is there\n"
    assert path.read_text() == "mine\n"
    assert init(pytester.path, "--force").returncode == 0
    assert "allreduce" in path.read_text()


def test_a_program_and_hosts(pytester: pytest.Pytester) -> None:
    (pytester.path / "app.py").write_text("")
    done = init(pytester.path, "sub", "--program", "python3 app.py --size 8", "--hosts", "gpu1,gpu2")
    assert done.returncode == 0, done.stderr
    argv = f'argv: ["{{python}}", "{pytester.path}/app.py", "--size", "8"]'
    assert argv in (pytester.path / "sub" / "hetgpu.yaml").read_text()
    assert 'node: ["gpu1", "gpu2"]' in (pytester.path / "sub" / "hetgpu.hosts.yaml").read_text()
    told = "run it    cd sub && pytest --hetgpu-matrix hetgpu.yaml --hetgpu-inventory hetgpu.hosts.yaml"
    assert done.stdout.splitlines()[-1] == told


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--hosts", "a;b"), "host 'a;b': 'a;b' must be a host's name or address"),
        (("--hosts=-oProxyCommand=x",), "host '-oProxyCommand=x': '-oProxyCommand=x' must be a host's name or address"),
        (("--program", "a 'b"), 'the command "a \'b" cannot be read: No closing quotation'),
    ],
)
def test_what_cannot_be_read(pytester: pytest.Pytester, arguments: tuple[str, ...], error: str) -> None:
    done = init(pytester.path, *arguments)
    assert (done.returncode, done.stderr) == (4, f"ERROR: {error}\n")
    assert not list(pytester.path.glob("hetgpu*"))


def test_a_long_argument_is_no_file(pytester: pytest.Pytester) -> None:
    assert init(pytester.path, "--program", f"python3 -c '{'x' * 5000}'").returncode == 0


def test_a_person_may_leave(pytester: pytest.Pytester) -> None:
    shown = Terminal(INIT, pytester.path)
    shown.until(lambda text: "Command of your program" in text)
    shown.type("\x04")
    text = shown.end()
    assert shown.status == 1
    assert "Traceback" not in text
    assert not list(pytester.path.glob("hetgpu*"))


def test_a_person_is_asked(pytester: pytest.Pytester) -> None:
    shown = Terminal(INIT, pytester.path)
    shown.until(lambda text: "Command of your program" in text)
    shown.type("./app --size 8\n")
    shown.until(lambda text: "Hosts that ssh reaches" in text)
    shown.type("\n")
    shown.until(lambda text: "Write hetgpu.yaml? [Y/n]" in text)
    shown.type("n\n")
    shown.end()
    assert shown.status == 1
    assert not list(pytester.path.glob("hetgpu*"))
