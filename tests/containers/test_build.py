"""The images that need no GPU, built on this machine's engine and proved by their own smoke check.

They stay on the engine as hetgpu-test/IMAGE: building them again takes seconds only because they do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

Lacking = Callable[[str, str], None]
CONTAINERS = Path(__file__).parents[2] / "containers"
SUITES = {
    "cpu-ompi5": "bookworm",
    "cpu-ompi5-b": "trixie",
    "cpu-ompi4": "bookworm",
    "cpu-mpich": "bookworm",
    "cpu-torch": "bookworm",
    "roce": "trixie",
}


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=900)


@pytest.fixture(scope="session")
def engine(lacking: Lacking) -> None:
    """A Docker engine that answers."""
    if shutil.which("docker") is None:
        lacking("docker", "there is no docker here: apt-get install docker.io")
    answer = docker("version")
    if answer.returncode != 0:
        lacking("docker", f"no Docker engine answers: {answer.stderr.strip()}")


@pytest.fixture(scope="session")
def base(engine: None) -> Callable[[str], list[str]]:
    """`base("trixie")`: the build argument for a base of our own; none where only a registry can give one."""

    def argument(suite: str) -> list[str]:
        tag = f"hetgpu-base:{suite}"
        if docker("image", "inspect", tag).returncode != 0:
            if shutil.which("mmdebstrap") is None:
                return []
            made = subprocess.run(
                [str(CONTAINERS / "make-base"), suite], capture_output=True, text=True, check=False, timeout=600
            )
            assert made.returncode == 0, made.stderr[-3000:]
        return ["--build-arg", f"BASE={tag}"]

    return argument


@pytest.fixture(scope="session")
def built(base: Callable[[str], list[str]]) -> Callable[[str], str]:
    """`built("cpu-ompi5")`: the tag of that image, freshly built or from the engine's cache."""

    def build(name: str) -> str:
        tag = f"hetgpu-test/{name}"
        # A page that links PyTorch's wheel for CPUs, where its own cannot be reached.
        page = os.environ.get("HETGPU_TORCH_WHEELS", "")
        wheels = ("--build-arg", f"WHEELS={page}") if page and name == "cpu-torch" else ()
        argv = ("build", "--network", "host", *base(SUITES[name]), *wheels, "--tag", tag, str(CONTAINERS / name))
        done = docker(*argv)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        return tag

    return build


@pytest.mark.parametrize("name", SUITES)
def test_an_image_has_what_it_says(built: Callable[[str], str], name: str) -> None:
    done = docker("run", "--rm", built(name), "hetgpu-smoke")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "LACKS" not in done.stdout
    assert "over tcp" in done.stdout or "UCX and tcp" in done.stdout


def test_the_smoke_check_names_what_lacks(built: Callable[[str], str]) -> None:
    tag = built("cpu-ompi5")
    breaking = "mv /opt/mpi/bin/mpirun /usr/bin/lspci /root && ssh-keygen -qA && exec hetgpu-smoke"
    done = docker("run", "--rm", tag, "sh", "-c", breaking)
    assert done.returncode == 1
    assert done.stderr.strip() == "this image lacks: mpirun, lspci, no ssh host keys"


def test_the_smoke_check_names_a_version_that_differs(built: Callable[[str], str]) -> None:
    tag = built("cpu-ompi5")
    pins = docker("image", "inspect", "--format", "{{json .Config.Env}}", tag).stdout
    assert "ucx=1.20.1" in pins
    other = "kind=openmpi mpi=5.0.11 ucx=1.18.1 libfabric=2.5 mpi4py=4.1.2 numpy=2.2.6"
    done = docker("run", "--rm", "--env", f"HETGPU_PINS={other}", tag, "hetgpu-smoke")
    assert done.returncode == 1
    assert "LACKS ucx 1.18.1: 1.20.1" in done.stdout


def test_an_image_starts_nothing_by_itself(built: Callable[[str], str]) -> None:
    done = docker(
        "image", "inspect", "--format", "{{json .Config.Entrypoint}} {{json .Config.Cmd}}", built("cpu-mpich")
    )
    assert done.stdout.strip() == 'null ["sleep","infinity"]'
