"""Memory that really runs out: the kernel kills a rank, and its count says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.nodes_here import AXES, HEAD, properties

pytestmark = pytest.mark.real

LIMIT = 600 << 20
MATRIX = """\
name: memory
hardware:
  cpu: {platform: cpu}
axes:
  placement: {two: [cpu, cpu]}
  transport: {ob1-tcp: {family: ob1}}
  workload: {fill: {kind: fault, fault: fill-memory}, kill: {kind: fault, fault: kill}}
"""
_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@pytest.fixture
def group(lacking: Callable[[str, str], None]) -> Iterator[Path]:
    """A control group of our own with little memory."""
    root, name = (_V1, "memory.limit_in_bytes") if _V1.is_dir() else (_V2, "memory.max")
    made = root / f"hetgpu-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / name).write_text(str(LIMIT))
    except OSError as error:
        lacking("cgroup", f"no control group can be made here ({error})")
    yield made
    made.rmdir()


def test_a_rank_that_the_kernel_killed_is_out_of_memory_and_another_is_not(
    group: Path, stack_prefix: Path, pytester: pytest.Pytester
) -> None:
    pytester.path.joinpath("memory.yaml").write_text(MATRIX)
    join = f"open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
    inside = f"import os, sys; {join}; os.execv(sys.argv[1], sys.argv[1:])"
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hetgpu-matrix", "memory.yaml")
    env = {**os.environ, "HETGPU_STACKS": str(stack_prefix.parent)}
    done = subprocess.run(
        (sys.executable, "-c", inside, *command), env=env, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 1, done.stdout
    cells = properties(pytester.path / "reports")
    fill, kill = cells["two-ob1-tcp-fill"], cells["two-ob1-tcp-kill"]
    assert (fill["outcome"], fill["signature"]) == ("out_of_memory", "oom-kill@kernel")
    assert fill["known"] == "out-of-memory-kill"
    assert "the kernel's OOM killer ended 1 process of its control group" in done.stdout
    # A peer may see the closed socket and abort the job before Open MPI's daemon tells of the signal.
    assert (kill["outcome"], kill["signature"]) in (("crash", "SIGKILL"), ("error", "peer-lost@openmpi"))


def test_memory_of_a_container_runs_out(nodes: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("test_tight.py").write_text(
        "import json, subprocess\n"
        "def test_cell(cluster, run):\n"
        "    name = cluster.nodes[1].host.check_output('cat /proc/self/cgroup').splitlines()\n"
        "    ident = next(line for line in name if ':memory:' in line or line.startswith('0::/'))[-64:]\n"
        f"    limits = ['--memory', '{LIMIT}', '--memory-swap', '{LIMIT}']\n"
        "    subprocess.run(['docker', 'update', *limits, ident], check=True)\n"
        "    print(run())\n"
    )
    axes = AXES.replace("{allreduce: {sizes: [8, 64K]}}", "{fill: {kind: fault, fault: fill-memory}}")
    result = nodes(axes, "test_tight.py", head=HEAD)
    assert result.ret == 1
    (cell,) = properties(pytester.path / "reports").values()
    assert (cell["outcome"], cell["signature"]) == ("out_of_memory", "oom-kill@kernel")
    result.stdout.fnmatch_lines(
        ["*out of memory on node1: the kernel's OOM killer ended 1 process of its control group*"]
    )
