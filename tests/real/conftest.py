"""A container engine that whole runs can use."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.nodes_here import BUILD, HEAD, HOSTS, left

Nodes = Callable[..., pytest.RunResult]


@pytest.fixture(scope="session")
def engine(lacking: Callable[[str, str], None]) -> None:
    """A Docker engine with the bases that containers/make-base makes."""
    if shutil.which("docker") is None:
        lacking("docker", "there is no docker here: apt-get install docker.io")
    for tag in ("hetgpu-base:bookworm", "hetgpu-base:trixie"):
        done = subprocess.run(("docker", "image", "inspect", tag), capture_output=True, text=True, check=False)
        if done.returncode:
            lacking("docker", f"no image {tag} ({done.stderr.strip()}): containers/make-base bookworm trixie")


@pytest.fixture
def nodes(
    engine: None, pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Nodes:
    """Runs a matrix over the images here; nothing of the run may be left on the engine."""
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path_factory.mktemp("leases")))
    pytester.path.joinpath("hosts.yaml").write_text(HOSTS + BUILD)

    def run(axes: str, *arguments: str, head: str = HEAD) -> pytest.RunResult:
        pytester.path.joinpath("nodes.yaml").write_text(head + axes)
        options = ("--hetgpu-matrix", "nodes.yaml", *arguments)
        if "--hetgpu-inventory" not in arguments:
            options += ("--hetgpu-inventory", "hosts.yaml")
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=400)
        run_folder = Path(pytester.path / "reports" / "latest").resolve()
        assert left(run_folder.name) == []
        return result

    return run
