"""The script that makes a base without a registry says what is missing, and does nothing twice."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CONTAINERS = Path(__file__).parents[2] / "containers"
MakesBase = Callable[..., subprocess.CompletedProcess[str]]


# Makes the file that mmdebstrap is told to, wherever it stands among the words.
MMDEBSTRAP = 'for word; do case $word in */base.tar) : >"$word" ;; esac; done; echo "$@"'


@pytest.fixture
def make_base(tmp_path: Path) -> Iterator[MakesBase]:
    """`make_base("bookworm", docker="exit 1")` runs the script where only such programs are.

    It must leave nothing in the folder it is run in.
    """
    (tmp_path / "current").mkdir()

    def make(*arguments: str, **programs: str) -> subprocess.CompletedProcess[str]:
        for name in ("bash", "id", "mktemp", "rm", "cat"):
            (tmp_path / name).symlink_to(str(shutil.which(name)))
        for name, script in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
        return subprocess.run(
            [str(tmp_path / "bash"), str(CONTAINERS / "make-base"), *arguments],
            cwd=tmp_path / "current",
            env={"PATH": str(tmp_path), "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    yield make
    assert list((tmp_path / "current").iterdir()) == []
    assert list(tmp_path.glob("tmp.*")) == []


def test_without_docker(make_base: MakesBase) -> None:
    done = make_base("bookworm")
    assert (done.returncode, done.stderr) == (1, "make-base: there is no docker here: apt-get install docker.io\n")


def test_without_an_engine(make_base: MakesBase) -> None:
    done = make_base("bookworm", docker="exit 1")
    assert done.returncode == 1
    assert "no Docker engine answers" in done.stderr


def test_without_mmdebstrap(make_base: MakesBase) -> None:
    done = make_base("bookworm", docker='[ "$1" = version ]')
    assert (done.returncode, done.stderr) == (1, "make-base: there is no mmdebstrap here: apt-get install mmdebstrap\n")


def test_what_is_there_is_left_alone(make_base: MakesBase) -> None:
    done = make_base("trixie", docker="exit 0")
    assert done.returncode == 0
    assert "hetgpu-base:trixie is there already" in done.stdout


def test_a_base_is_imported_under_its_name(make_base: MakesBase, tmp_path: Path) -> None:
    done = make_base("--force", "trixie", "mine:1", docker=f'echo "$@" >>{tmp_path}/docker.log', mmdebstrap=MMDEBSTRAP)
    assert done.returncode == 0, done.stderr
    assert "made mine:1" in done.stdout
    assert (tmp_path / "docker.log").read_text().splitlines()[-1].endswith("base.tar mine:1")


def test_a_failing_mmdebstrap_imports_nothing(make_base: MakesBase, tmp_path: Path) -> None:
    done = make_base(
        "--force", "trixi", docker=f'echo "$1" >>{tmp_path}/docker.log', mmdebstrap="echo no such suite >&2; exit 25"
    )
    assert done.returncode == 1
    assert "no such suite" in done.stderr
    assert "mmdebstrap could not make 'trixi'" in done.stderr
    assert "import" not in (tmp_path / "docker.log").read_text()


@pytest.mark.parametrize("arguments", [(), ("a", "b", "c"), ("--loud", "trixie")], ids=len)
def test_wrong_usage(make_base: MakesBase, arguments: tuple[str, ...]) -> None:
    done = make_base(*arguments)
    assert done.returncode == 2
    assert "usage: containers/make-base" in done.stderr


def test_a_suite_is_a_name(make_base: MakesBase) -> None:
    done = make_base("../etc")
    assert done.returncode == 1
    assert "'../etc' is not the name of a Debian release" in done.stderr
