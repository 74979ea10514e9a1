"""The test suite of an application, mpi4py, over three MPIs: the matrix of the how-to guide."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.store.cells import read_cells
from tests.document_blocks import blocks

pytestmark = [pytest.mark.real, pytest.mark.nightly(reason="runs 2,000 tests over six transports of three MPIs")]
GUIDE = "docs/how-to/application-tests.md"
RELEASE = "mpi4py-4.1.2"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The source distribution of mpi4py."""
    argv = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "mpi4py", "mpi4py==4.1.2")
    subprocess.run([*argv, "-d", str(tmp_path)], check=True, timeout=300)
    with tarfile.open(next(tmp_path.glob("mpi4py-*.tar.gz"))) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / RELEASE


def test_failed_tests_are_named_and_compared(
    pytester: pytest.Pytester,
    sources: Path,
    stacks_here: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path_factory.mktemp("stacks")
    for name in ("openmpi-5", "openmpi-4", "mpich"):
        (home / name).symlink_to(stacks_here(name))
    monkeypatch.setenv("HETGPU_STACKS", str(home))
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path_factory.mktemp("leases")))
    (text,) = (block.text for block in blocks() if block.place.startswith(GUIDE) and block.language == "yaml")
    pytester.path.joinpath("tests.yaml").write_text(text.replace(f"/opt/{RELEASE}", str(sources)))
    pytester.runpytest_subprocess("--hetgpu-matrix", "tests.yaml", timeout=2400)
    reports = (pytester.path / "reports" / "latest").resolve()
    suites = {cell.scenario.removesuffix("-mpi4py"): cell.outcome.suite for cell in read_cells(reports)}
    assert len(suites) == 6
    whole = {name: suite for name, suite in suites.items() if suite}
    assert {"openmpi-5-shm", "openmpi-5-ucx-tcp", "mpich-shm"} <= whole.keys()
    assert all(suite.tests > 1500 for suite in whole.values())
    # Seen here: Open MPI does not revoke a communicator over UCX, and MPICH's Fortran types lack a size.
    over_ucx, shared = whole["openmpi-5-ucx-tcp"], whole["openmpi-5-shm"]
    revoked = {name for name in over_ucx.failed if name.startswith("test_ulfm.")}
    assert revoked
    assert not revoked & {*shared.failed}
    assert any(name.startswith("test_mpiabi.") for name in whole["mpich-shm"].failed)
    summary = (reports / "summary.md").read_text()
    assert "| failed test | fails in | not in |" in summary
