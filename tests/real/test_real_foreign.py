"""Whole runs of programs that are not ours: mpi4py.bench, a command, and what of OSU and UCX is on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from junitparser import JUnitXml

from pytest_hetgpu.analysis import program_output
from pytest_hetgpu.cli.report import rejudge
from pytest_hetgpu.extensions.readers import command
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.run_summary import summarise

pytestmark = [pytest.mark.real]
# A test with a pytester forgets what was first imported in it; the registry keeps the classes.
KEPT = (program_output, command)

HEAD = """\
name: foreign
hardware: {cpu: {}}
axes:
  placement: {two: [cpu, cpu]}
"""
Cells = dict[str, dict[str, str]]
Foreign = Callable[..., Cells]


@pytest.fixture
def foreign(
    pytester: pytest.Pytester,
    stacks_here: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Foreign:
    """Runs a matrix on stacks; gives each cell's properties, which judging its log again must not change."""
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path_factory.mktemp("leases")))
    monkeypatch.setenv("HETGPU_PREFLIGHT", "off")

    def run(axes: str, *stacks: str, code: int = 0, found: Callable[[str], Path] = stacks_here) -> Cells:
        home = tmp_path_factory.mktemp("stacks")
        for name in stacks or ("openmpi-5",):
            (home / name).symlink_to(found(name))
        monkeypatch.setenv("HETGPU_STACKS", str(home))
        pytester.path.joinpath("foreign.yaml").write_text(HEAD + axes)
        result = pytester.runpytest_subprocess("--hetgpu-matrix", "foreign.yaml", timeout=240)
        assert result.ret == code
        reports = (pytester.path / "reports" / "latest").resolve()
        cells = properties(reports)
        assert list(rejudge(reports)) == [f"0 verdicts changed; reports rebuilt in {reports}"]
        assert properties(reports) == cells
        return cells

    return run


def properties(reports: Path) -> Cells:
    return {
        str(case.name): {p.get("name"): p.get("value") for p in case._elem.iter("property")}
        for suite in JUnitXml.fromfile(str(reports / "junit.xml"))
        for case in suite
    }


def folder_of(program: str, lacking: Callable[[str, str], None]) -> str:
    """The folder on this machine that holds a program: of PATH, or of those in HETGPU_FOREIGN."""
    path = os.pathsep.join(filter(None, (os.environ.get("HETGPU_FOREIGN"), os.environ.get("PATH"))))
    found = shutil.which(program, path=path)
    if found is None:
        lacking(program, f"there is no {program} in PATH, nor in a folder of HETGPU_FOREIGN")
    return str(Path(found or "").parent)


@pytest.mark.parametrize("stack", ["openmpi-5", "openmpi-4", "mpich"])
def test_mpi4py_bench(foreign: Foreign, stack: str, pytester: pytest.Pytester) -> None:
    axes = f"""\
  transport: {{shm: {{}}, ucx: {{}}}}
  workload:
    ring: {{kind: mpi4py_bench, iterations: 5, warmup: 0}}
    pingpong: {{kind: mpi4py_bench, benchmark: pingpong, sizes: 8..64, check: false, iterations: 5, warmup: 0}}
    hello: {{kind: mpi4py_bench, benchmark: helloworld, check: false}}
  stack: [{stack}]
"""
    cells = foreign(axes, stack)
    assert {cell["verdict"] for cell in cells.values()} == {"ok"}
    assert len(cells) == 6
    ring, pingpong = (cells[f"two-ucx-{name}-{stack}"] for name in ("ring", "pingpong"))
    assert ring["transport_seen"] == pingpong["transport_seen"] == "ucx/tcp"
    assert ring["tool"].startswith("mpi4py.bench 4.")
    assert ring["stack"].startswith("MPICH" if stack == "mpich" else "Open MPI")
    assert float(ring["latency[1024,uint8]"]) > 0
    assert float(pingpong["busbw[64,uint8]"]) > 0
    # What history keeps of it.
    run = (pytester.path / "reports" / "latest").resolve()
    kept = {cell.scenario: cell for cell in summarise(read_run(run), run).cells}[f"two-ucx-ring-{stack}"]
    assert (kept.tool, kept.memory) == (ring["tool"], "host")
    assert kept.facts["mpi4py"] == ring["tool"].partition(" ")[2]


APP = """\
import json, sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
total = comm.allreduce(1)
if comm.rank == 0:
    print(json.dumps({"ok": total == comm.size, "runs": [{"bytes": 8, "us": 1.5}]}, indent=1))
    print("64K bytes: 2.5 GB/s")
    print("ALL TESTS PASSED" if sys.argv[1] == "well" else "ONE FAILED", flush=True)
"""


def test_a_command(foreign: Foreign, pytester: pytest.Pytester) -> None:
    pytest.importorskip("re2")
    path = pytester.path / "app.py"
    path.write_text(APP)
    (pytester.path / "made.xml").write_text('<testsuite><testcase classname="a" name="b"/></testsuite>')
    axes = f"""\
  transport: {{ob1: {{}}}}
  workload:
    patterns:
      kind: command
      argv: ["{{python}}", -m, mpi4py, {path}, well]
      success: ALL TESTS PASSED
      patterns: [{{pattern: '(?P<size>\\w+) bytes: (?P<value>\\S+) (?P<unit>GB/s)', metric: busbw}}]
    json:
      kind: command
      argv: ["{{python}}", -m, mpi4py, {path}, well]
      json_success: ok
      json_numbers: [{{path: runs.*.us, sizes: runs.*.bytes, unit: us}}]
    badly: {{kind: command, argv: ["{{python}}", -m, mpi4py, {path}, badly], success: ALL TESTS PASSED}}
    plain: {{kind: command, argv: [sh, -c, "echo {{platform}} {{node0}}"], mpi: false, success: cpu 127.0.0.1}}
    unproven: {{kind: command, argv: [sh, -c, exit 0], check: false}}
    broken: {{kind: command, argv: [sh, -c, exit 3], mpi: false, check: false}}
    tap: {{kind: command, argv: [sh, -c, "echo 1..2; echo ok 1 - a; echo not ok 2 - b"], mpi: false, tests: tap}}
    junit:
      kind: command
      argv: [cp, {path.parent}/made.xml, "{path.parent}/results-{{rank}}.xml"]
      mpi: false
      junit: "{path.parent}/results-{{rank}}.xml"
"""
    cells = {name.removeprefix("two-ob1-"): cell for name, cell in foreign(axes, code=1).items()}
    assert {name: cell["outcome"] for name, cell in cells.items()} == {
        "patterns": "passed",
        "json": "passed",
        "badly": "wrong_result",
        "plain": "passed",
        "unproven": "unknown",
        "broken": "error",
        "tap": "wrong_result",
        "junit": "passed",
    }
    assert cells["tap"]["why"] == cells["tap"]["tests"] == "1 of 2 tests failed: b"
    assert cells["junit"]["tests"] == "1 test passed"
    assert float(cells["patterns"]["busbw[65536,none]"]) == 2.5
    assert float(cells["json"]["latency[8,none]"]) == 1.5
    assert cells["patterns"]["transport_seen"] == "ob1/tcp"
    assert "stack" not in cells["plain"]
    assert cells["badly"]["why"] == "nothing fits 'ALL TESTS PASSED', which marks success"


DIES = "int main(int n, char **v) { return n > 1 ? *(volatile int *)0 : 0; }"
SWALLOWS = "#!/bin/sh\n'{}' \"$@\" 2>/dev/null\nexit 0\n"


def test_a_launcher_that_hides_the_death_of_a_rank(
    foreign: Foreign, pytester: pytest.Pytester, stack_prefix: Path
) -> None:
    real, lenient = stack_prefix, pytester.mkdir("lenient")
    for entry in real.iterdir():
        (lenient / entry.name).symlink_to(entry) if entry.name != "bin" else (lenient / "bin").mkdir()
    for entry in (real / "bin").iterdir():
        (lenient / "bin" / entry.name).symlink_to(entry)
    for name in ("mpirun", "mpiexec"):
        (lenient / "bin" / name).unlink()
        (lenient / "bin" / name).write_text(SWALLOWS.format(real / "bin" / name))
        (lenient / "bin" / name).chmod(0o755)
    program = pytester.path / "dies"
    (pytester.path / "dies.c").write_text(DIES)
    subprocess.run(("gcc", "dies.c", "-o", program), cwd=pytester.path, check=True)
    body = 'case "$OMPI_COMM_WORLD_RANK$PMI_RANK" in 1*) {};; esac'
    axes = f"""\
  transport: {{auto: {{}}}}
  workload:
    dies: {{kind: command, argv: [sh, -c, '{body.format(f"exec {program} now")}'], mpi: false, check: false}}
    fails: {{kind: command, argv: [sh, -c, '{body.format("exit 3")}'], mpi: false, check: false}}
    good: {{kind: command, argv: [{program}], mpi: false, check: false}}
"""
    cells = foreign(axes, code=1, found=lambda _: lenient)
    told = {name.split("-")[2]: (cell["outcome"], cell.get("why", "")) for name, cell in cells.items()}
    assert told["dies"][0] == "crash"
    assert "rank 1 died of SIGSEGV" in told["dies"][1]
    assert told["fails"][0] == "error"
    assert "exit code 3" in told["fails"][1]
    assert told["good"][0] == "passed"


def test_a_program_that_is_not_here_is_a_skip_that_says_where_it_was_looked_for(
    foreign: Foreign, pytester: pytest.Pytester
) -> None:
    axes = """\
  transport: {ob1: {}}
  workload: {osu: {program: osu_get_bw, folders: "/no*"}}
"""
    cell = foreign(axes, code=10)["two-ob1-osu"]
    assert (cell["outcome"], cell["verdict"]) == ("skipped", "not_run")
    assert cell["why"].startswith("there is no osu_get_bw on ")
    assert "(looked for in /no*, " in cell["why"]
    summary = (pytester.path / "reports" / "latest" / "summary.md").read_text()
    assert "Not run: 1" in summary


def test_osu(foreign: Foreign, lacking: Callable[[str, str], None]) -> None:
    folder = folder_of("osu_allreduce", lacking)
    axes = f"""\
  transport: {{ob1: {{}}, ucx: {{}}}}
  workload:
    allreduce: {{kind: osu, program: osu_allreduce, folders: {folder}, sizes: 8..64, iterations: 5, warmup: 0}}
    bw: {{kind: osu, program: osu_bw, folders: {folder}, sizes: 8..16, iterations: 2, warmup: 0}}
"""
    cells = foreign(axes)
    assert {cell["verdict"] for cell in cells.values()} == {"ok"}
    assert cells["two-ob1-allreduce"]["transport_seen"] == "ob1/tcp"
    assert cells["two-ucx-bw"]["transport_seen"] == "ucx/tcp"
    assert float(cells["two-ucx-bw"]["bandwidth[16,int8]"]) > 0
    assert cells["two-ucx-bw"]["tool"].startswith("osu_bw ")


def test_ucx_perftest(foreign: Foreign, lacking: Callable[[str, str], None]) -> None:
    folder = folder_of("ucx_perftest", lacking)
    axes = f"""\
  transport: {{ucx: {{}}, ob1: {{}}}}
  workload:
    lat: {{kind: ucx_perftest, folders: {folder}, check: false, iterations: 100, warmup: 0}}
    bw: {{kind: ucx_perftest, folders: {folder}, test: tag_bw, size: 64K, check: false, iterations: 100, warmup: 0}}
"""
    cells = foreign(axes)
    assert {name: cell["verdict"] for name, cell in cells.items()} == {
        "two-ucx-lat": "ok",
        "two-ucx-bw": "ok",
        "two-ob1-lat": "not_run",
        "two-ob1-bw": "not_run",
    }
    assert cells["two-ucx-lat"]["transport_seen"] == "ucx/tcp"
    assert float(cells["two-ucx-lat"]["latency[8,uint8]"]) > 0
    assert float(cells["two-ucx-bw"]["bandwidth[65536,uint8]"]) > 0


def test_its_numbers_are_held_against_references(foreign: Foreign) -> None:
    pingpong = "kind: mpi4py_bench, benchmark: pingpong, sizes: 8..1M, check: false, iterations: 20"
    axes = f"""\
  transport: {{shm: {{}}}}
  workload:
    met: {{{pingpong}, reference: {{busbw: {{1M: 0.001}}, latency: {{8: 100000}}}}}}
    missed: {{{pingpong}, reference: {{busbw: {{1M: 9000}}}}}}
    beside: {{{pingpong}, reference: {{of: {{workload: ours}}, fraction: 0.01, min_size: 1M}}}}
    ours: {{kind: send_recv, sizes: 1M, dtype: uint8}}
"""
    cells = foreign(axes, code=1)
    outcomes = {name.rpartition("-")[2]: cell["outcome"] for name, cell in cells.items()}
    assert outcomes == {"met": "passed", "missed": "slow", "beside": "passed", "ours": "passed"}
