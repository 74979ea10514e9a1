"""The wheel and the source distribution: the same wheel comes from either, with all that a user needs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from pytest_hetgpu._version import __version__

ROOT = Path(__file__).resolve().parents[2]


def build(source: Path, target: str, place: Path) -> Path:
    """Build a distribution of a folder by hatchling, as pip and build do."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(place))
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = place.iterdir()
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    place = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, "sdist", place)) as archive:
        archive.extractall(place / "unpacked", filter="data") if hasattr(tarfile, "data_filter") else (
            archive.extractall(place / "unpacked")
        )
    return place / "unpacked" / f"pytest_hetgpu-{__version__}"


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that is built of the source distribution."""
    return zipfile.ZipFile(build(source, "wheel", tmp_path_factory.mktemp("wheel")))


def test_the_source_has_what_building_testing_and_citing_need(source: Path) -> None:
    licence = ("LICENSE", "LICENSES/MIT.txt", "REUSE.toml", "CITATION.cff")
    data = ("scenarios", "matrices", "containers", "action.yml", "docs/ci/nightly.sh")
    wanted = (*licence, *data, "CHANGELOG.md", "tests/conftest.py", "bootstrap.py")
    assert [name for name in wanted if not (source / name).exists()] == []
    assert not (source / "reports" / "sample").exists()


def test_a_wheel_of_the_source_is_that_of_the_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    with zipfile.ZipFile(build(ROOT, "wheel", tmp_path)) as direct:
        assert sorted(wheel.namelist()) == sorted(direct.namelist())


def test_the_wheel_has_the_data_and_its_licence(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    info = f"pytest_hetgpu-{__version__}.dist-info"
    data = ("matrices/smoke.yaml", "scenarios/test_hetgpu_matrix.py", "remote/allreduce.py", "py.typed")
    assert {*(f"pytest_hetgpu/{name}" for name in data), f"{info}/licenses/LICENSE"} <= names
    assert [name for name in names if name.startswith(("tests/", "docs/"))] == []
    metadata = message_from_string(wheel.read(f"{info}/METADATA").decode())
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {"mpi", "docker", "completion"} <= set(metadata.get_all("Provides-Extra", []))
