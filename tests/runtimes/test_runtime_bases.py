"""Base images of our own: which names are made, by which script, and what is said where they cannot be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.model import Reach
from pytest_hetgpu.runtimes import _bases
from pytest_hetgpu.runtimes._engine import Engine, engine_of
from pytest_hetgpu.runtimes.base import Gathering

ROOT = Path(__file__).resolve().parents[2]
NAME = "hetgpu-base:bookworm"


def local() -> Engine:
    return engine_of("node0", Reach("unix:///nowhere/docker.sock"))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "debian:bookworm-slim",
            "hetgpu-base",
            "hetgpu-base:sid",
            "evil/hetgpu-base:bookworm",
            "hetgpu-base:bookworm\n",
        ),
        *("hetgpu-base:bookworm;id", "hetgpu-base:--force", "hetgpu-base:$(id)", "hetgpu-base:../bookworm", ""),
    ],
)
def test_no_other_name_is_ever_made(name: str) -> None:
    assert not _bases.is_ours(name)


def test_the_bases_of_the_shipped_images_are() -> None:
    assert _bases.is_ours(NAME)
    assert _bases.is_ours("hetgpu-base:trixie")


def test_the_script_is_the_one_that_comes_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers" / "make-base").write_text("touch hostile")
    monkeypatch.chdir(tmp_path)
    assert _bases._script() == ROOT / "containers" / "make-base"
    monkeypatch.setattr(_bases, "_PACKAGE", tmp_path / "pytest_hetgpu")
    assert _bases._script() is None


def refused(engine: Engine) -> str:
    with pytest.raises(ProvisionError) as caught:
        _bases.make(engine, NAME, "node0", None)
    return str(caught.value)


def test_without_mmdebstrap_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(local()) == (
        "node0: the Docker engine at unix:///nowhere/docker.sock lacks the base image hetgpu-base:bookworm, which no "
        "registry has, and it is not made here (there is no mmdebstrap: `apt-get install mmdebstrap`): make it as root "
        f"with `bash {ROOT}/containers/make-base bookworm`"
    )


def test_without_root_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mmdebstrap", "docker"):
        (tmp_path / name).symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "it is not made here (that needs root)" in refused(local())


def test_on_another_host_it_is_made_there() -> None:
    said = refused(engine_of("node0", Reach("ssh://gpu1")))
    assert "(the engine is not of this machine): make it on gpu1 as root with `bash" in said


def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo I: downloading; echo 'E: no mirror' >&2; exit 3")
    code, lines = _bases._run(local(), ("bash", str(script)), None)
    assert (code, lines) == (3, ["I: downloading", "E: no mirror"])


def test_one_that_nobody_waits_for_any_more_ends(tmp_path: Path) -> None:
    gathering = Gathering("p", "run", "me@here:1")
    gathering.abandoned.set()
    script = tmp_path / "script"
    script.write_text("sleep 600")
    code, _ = _bases._run(local(), ("bash", str(script)), gathering)
    assert code == -15
