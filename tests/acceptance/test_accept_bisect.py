"""Where along an axis, or from which version on, the outcome changes; without xdist, with -n0 and with -n2."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.store.cells import read_run

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Latest = Callable[[], Path]
SIZES = [f"{8 << step}" for step in range(10)]
KEY = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"
MATRIX = """\
name: demo
hardware:
  cpu: {platform: cpu}
axes:
  placement: {two: [cpu, cpu]}
  transport: {ob1-tcp: {family: ob1}}
  workload: {allreduce: {}}
  how: {HOWS}
  size: {VALUES}
"""


def write(how: str, fails_from: int = 99) -> None:
    """Cells of ten sizes, of which those from a place on behave in some way."""
    values = ", ".join(
        f"{size}: {{sizes: {size}, env: {{BEHAVE: {how if place >= fails_from else 'good'}}}}}"
        for place, size in enumerate(SIZES)
    )
    Path("demo.yaml").write_text(
        MATRIX.replace("HOWS", "one: {env: {ANY: one}}, two: {env: {ANY: two}}").replace("VALUES", values)
    )


def test_a_threshold_is_found_in_few_runs(run_pytest: Run, latest: Latest, mode: tuple[str, ...]) -> None:
    write("crash", 6)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-bisect", "size", *mode)
    assert done.ret == 1
    record = read_run(latest())
    assert len(record.cells) == 10
    assert {one.text for one in record.bisected} == {f"ok to 256, {KEY} from 512 (5 runs)"}
    line = f"size: ok to 256, {KEY} from 512 (5 runs), with placement=two transport=ob1-tcp workload=allreduce how=one"
    done.stdout.fnmatch_lines([line])
    summary = (latest() / "summary.md").read_text().replace("\\", "")
    assert "## Where it changes" in summary
    assert line in summary
    assert "ok to 256, " in (latest() / "index.html").read_text()


def test_without_a_change_only_the_ends_are_run(run_pytest: Run, latest: Latest) -> None:
    write("good")
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-bisect", "size")
    assert len(read_run(latest()).cells) == 4
    assert {one.text for one in read_run(latest()).bisected} == {"ok from 8 to 4096 (2 runs)"}


def test_a_resumed_run_does_not_search_again(run_pytest: Run, latest: Latest) -> None:
    write("crash", 3)
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-bisect", "size")
    before = read_run(latest()).bisected
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-bisect", "size", "--hetgpu-resume")
    assert read_run(latest()).bisected == before != ()


def test_versions_of_a_stack(run_pytest: Run, latest: Latest, stacks: Path) -> None:
    """Versions beside the stack that a failed cell used: the older ones work."""
    write("crash", 0)
    for version in ("5.0.8", "5.0.9", "5.0.10"):
        place = shutil.copytree(stacks / "openmpi-5", stacks / f"openmpi-5@{version}", symlinks=True)
        (place / "lib/libmpi.so.40").write_bytes(b"\0ompi_mpi_init\0" + version.encode() + b"\0")
        launcher = place / "bin/mpirun"
        text = launcher.read_text().replace("Open MPI v5.0.11", f"Open MPI v{version}")
        launcher.write_text(text if version == "5.0.10" else text.replace("if behave in ENDINGS", "if not behave"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-bisect", "stack", "-k", "one-64")
    assert done.ret == 1
    (one,) = read_run(latest()).bisected
    assert one.text == f"ok to 5.0.9, {KEY} from 5.0.10 (4 runs)"
    done.stdout.fnmatch_lines([f"stack: {one.text}, with cell=two-ob1-tcp-allreduce-one-64 stack=openmpi-5"])
    assert len(read_run(latest()).cells) == 1


def test_an_axis_without_order_is_a_usage_error(run_pytest: Run) -> None:
    write("good")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-bisect", "how")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: --hetgpu-bisect: the values of how have no order: 'one' is no size, *"])
