"""Base images of our own: which names are made, by which script, and what is said where they cannot be."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.package_data import packaged
from pytest_hetgpu.extensions.runtimes._docker import base_images, images
from pytest_hetgpu.extensions.runtimes._docker.address import Address
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine, EngineGone, engine_of
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.model.job import ConnectionInfo, Image

NAME = "hetgpu-base:bookworm"


def local() -> Engine:
    return engine_of("node0", ConnectionInfo("unix:///nowhere/docker.sock"))


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
    assert not base_images.is_ours(name)


def test_the_bases_of_the_shipped_images_are() -> None:
    assert base_images.is_ours(NAME)
    assert base_images.is_ours("hetgpu-base:trixie")


def test_the_script_is_the_one_that_comes_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers" / "make-base").write_text("touch hostile")
    monkeypatch.chdir(tmp_path)
    assert base_images._script() == packaged("containers") / "make-base"
    monkeypatch.setattr(base_images, "PACKAGE", tmp_path / "pytest_hetgpu")
    assert base_images._script() is None


def refused(engine: Engine) -> str:
    with pytest.raises(ProvisionError) as caught:
        base_images.make(engine, NAME, "node0", None)
    return str(caught.value)


def test_without_mmdebstrap_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(local()) == (
        "node0: the Docker engine at unix:///nowhere/docker.sock lacks the base image hetgpu-base:bookworm, which no "
        "registry has, and it is not made here (there is no mmdebstrap: `apt-get install mmdebstrap`): make it as root "
        f"with `bash {packaged('containers')}/make-base bookworm`"
    )


def test_without_root_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mmdebstrap", "docker"):
        (tmp_path / name).symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "it is not made here (that needs root)" in refused(local())


def test_on_another_host_it_is_made_there() -> None:
    said = refused(engine_of("node0", ConnectionInfo("ssh://gpu1")))
    assert "(the engine is not of this machine): make it on gpu1 as root with `bash" in said


def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo I: downloading; echo 'E: no mirror' >&2; exit 3")
    code, lines = base_images._run(local(), ("bash", str(script)), None)
    assert (code, lines) == (3, ["I: downloading", "E: no mirror"])


def test_one_that_nobody_waits_for_any_more_ends(tmp_path: Path) -> None:
    deployment = Deployment("p", "run", "me@here:1")
    deployment.abandoned.set()
    script = tmp_path / "script"
    script.write_text("sleep 600")
    code, _ = base_images._run(local(), ("bash", str(script)), deployment)
    assert code == -15


class Engineless(Engine):
    """An engine of this machine that nobody connects to; `gone` is what it answers to `away`."""

    def __init__(self, gone: str = "") -> None:
        super().__init__(Address("unix:///nowhere/docker.sock", "the engine"))
        self._api = self
        self.gone = gone

    def watch(self, api: object) -> int:
        return 0

    def away(self, since: int) -> str:
        return self.gone


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit codes of the next scripts, of which none is run."""
    codes: list[int] = []
    monkeypatch.setattr(base_images, "_lacking", lambda *_: "")
    monkeypatch.setattr(base_images, "_run", lambda *_: (codes.pop(0), ["E: no space"]))
    monkeypatch.setattr(images, "_inspect", lambda *_: None)
    monkeypatch.setattr(images, "_build", lambda *_: None)
    monkeypatch.setattr(images, "base_of", lambda *_: NAME)
    return codes


IMAGE = Image("hetgpu-test:1", folder="/nowhere")


def test_a_base_that_was_given_up_is_made_for_the_next_who_asks(making: list[int]) -> None:
    engine, given_up = Engineless(), Deployment("p", "run", "me@here:1")
    given_up.abandoned.set()
    making += [-15, 0]
    with pytest.raises(ProvisionError, match="is no longer waited for"):
        images.ensure(engine, IMAGE, "node0", given_up)
    images.ensure(engine, IMAGE, "node0", Deployment("p", "run", "me@here:1"))
    assert making == []


def test_a_base_that_lost_its_engine_is_made_once_more(making: list[int]) -> None:
    engine = Engineless("the engine does not answer")
    making += [1, 0]
    with pytest.raises(EngineGone, match=f"the base image {NAME} cannot be made: the engine does not answer"):
        images.ensure(engine, IMAGE, "node0")
    images.ensure(engine, IMAGE, "node0")


def test_a_base_that_cannot_be_made_is_tried_once(making: list[int]) -> None:
    engine = Engineless()
    making += [1]
    for _ in range(2):
        with pytest.raises(ProvisionError, match="E: no space"):
            images.ensure(engine, IMAGE, "node0")


def test_who_waits_for_another_process_says_so_and_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    engine = Engineless()
    told: list[str] = []
    deployment = Deployment("p", "run", "me@here:1", telling=told.append)
    with images._alone(engine, NAME, "node0", None):
        deployment.abandoned.set()
        with (
            pytest.raises(ProvisionError, match="is no longer waited for"),
            images._alone(engine, NAME, "node0", deployment),
        ):
            pass
    assert told == [f"waits for another process, which makes the image {NAME}", ""]
    (lock,) = tmp_path.glob("hetgpu-*/build-*.lock")
    with lock.open("r+b") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_who_waits_goes_on_once_the_other_process_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    engine, waits = Engineless(), threading.Event()
    deployment = Deployment("p", "run", "me@here:1", telling=lambda _: waits.set())
    entered = threading.Event()

    def second() -> None:
        with images._alone(engine, NAME, "node0", deployment):
            entered.set()

    thread = threading.Thread(target=second)
    with images._alone(engine, NAME, "node0", None):
        thread.start()
        assert waits.wait(20)
        assert not entered.is_set()
    thread.join(20)
    assert entered.is_set()
