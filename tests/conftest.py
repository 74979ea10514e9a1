"""What tests of all rooms share: where a real MPI is, and what a machine must have."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.config.matrix.reader import read
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.planning.expand import expand
from tests import postgresql_server
from tests.postgresql_server import PostgresqlServer

ROOT = Path(__file__).resolve().parent.parent


# A test with a pytester forgets what was first imported in it. Of these somebody else would keep classes, and meet them
# once more as others: a cookie jar that is none.
KEPT = ("http.cookiejar", "requests", "docker", "docker.errors")


def pytest_configure(config: pytest.Config) -> None:
    # Not in pyproject.toml: a matrix that runs here may have a workload of that name.
    if not config.getoption("hetgpu_matrix", None):
        config.addinivalue_line("markers", "slow: takes more than 5 seconds; README's test command leaves it out")
    for name in KEPT:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Fixed examples where a red run must be repeatable; everywhere else new ones each time.
    try:
        from hypothesis import settings
    except ImportError:
        return
    settings.register_profile("ci", derandomize=True, deadline=None)
    settings.register_profile("here", deadline=None)
    settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Run child sessions without Hypothesis' plugin: it imports all of Hypothesis at their end, 0.6 s each time."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    return pytester


Need = Callable[[str, str], NoReturn]


@pytest.fixture(scope="session")
def lacking() -> Need:
    """`lacking("stack", reason)` skips, or fails where HETGPU_REQUIRE (a list with commas) says it must be here."""

    def decide(what: str, reason: str) -> NoReturn:
        if what in (word.strip() for word in os.environ.get("HETGPU_REQUIRE", "").split(",")):
            pytest.fail(f"HETGPU_REQUIRE holds {what!r}, but {reason}", pytrace=False)
        pytest.skip(reason)

    return decide


@pytest.fixture
def testinfra(lacking: Need) -> None:
    """testinfra can be imported."""
    if importlib.util.find_spec("testinfra") is None:
        lacking("testinfra", "pytest-testinfra is not installed")


def stack_candidates(name: str) -> Iterator[Path]:
    """Where a stack may be: $HETGPU_STACK_OPENMPI_5, below each folder of $HETGPU_STACKS, in the checkout."""
    given = os.environ.get(f"HETGPU_STACK_{name.upper().replace('-', '_')}")
    if given:
        yield Path(given)
    for folder in os.environ.get("HETGPU_STACKS", "").split(os.pathsep):
        if folder:
            yield Path(folder) / name
    yield ROOT / ".stacks" / name


Stacks = Callable[[str], Path]


@pytest.fixture(scope="session")
def stacks_here(lacking: Need) -> Stacks:
    """`stacks_here("mpich")` is the prefix of a real stack with mpi4py and numpy; skips where there is none."""

    def find(name: str) -> Path:
        looked = list(stack_candidates(name))
        for prefix in looked:
            if (prefix / "bin" / "mpirun").exists() and (prefix / "bin" / "python").exists():
                return prefix
        return lacking("stack", f"there is no {name} in {', '.join(map(str, looked))}: python3 bootstrap.py stack")

    return find


@pytest.fixture(scope="session")
def stack_prefix(stacks_here: Stacks) -> Path:
    """The prefix of a real Open MPI 5."""
    return stacks_here("openmpi-5")


@pytest.fixture(scope="session")
def engine(lacking: Need) -> None:
    """A Docker engine with the bases that containers/make-base makes."""
    if shutil.which("docker") is None:
        lacking("docker", "there is no docker here: apt-get install docker.io")
    for tag in ("hetgpu-base:bookworm", "hetgpu-base:trixie"):
        done = subprocess.run(("docker", "image", "inspect", tag), capture_output=True, text=True, check=False)
        if done.returncode:
            lacking("docker", f"no image {tag} ({done.stderr.strip()}): containers/make-base bookworm trixie")


@pytest.fixture(scope="session")
def postgresql(lacking: Need) -> Iterator[PostgresqlServer]:
    """A PostgreSQL server of its own for this session, and the packages that reach it."""
    missing = [name for name in ("sqlalchemy", "psycopg") if importlib.util.find_spec(name) is None]
    found = postgresql_server.programs()
    if missing or found is None:
        lacking("postgresql", f"there is no {' and '.join(missing) or 'server: apt-get install postgresql'}")
    with postgresql_server.server(found) as running:
        yield running


Reads = Callable[..., Matrix]


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Reads the text of a matrix, which matrix_errors call `m.yaml`; keywords are its environment."""
    monkeypatch.chdir(tmp_path)

    def read_text(text: str, **environ: str) -> Matrix:
        Path("m.yaml").write_text(text, encoding="utf-8")
        return read(Path("m.yaml"), environ)

    return read_text


@pytest.fixture
def matrix_errors(reads: Reads) -> Callable[..., list[str]]:
    """Everything that reading and expanding the text of a matrix complains about, empty for a good one."""

    def complain(text: str, **environ: str) -> list[str]:
        try:
            expand(reads(text, **environ))
        except MatrixError as error:
            return list(error.errors)
        return []

    return complain
