"""Conditions, cures and smallest jobs of real failures."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.analysis.boundary.trials import TrialResult
from pytest_hetgpu.store.cells import RunRecord, read_run

pytestmark = pytest.mark.real

Lacking = Callable[[str, str], None]
BRIDGE = "hgpu-spare0"
CRASH = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"


@pytest.fixture
def run(stacks_here: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Runs a matrix with further options; returns the folder of the run."""

    def ran(text: str, *options: str, stack: str = "openmpi-5", more: str = "") -> Path:
        home = stacks_here(stack).parent
        (tmp_path / "leases").mkdir(mode=0o700, exist_ok=True)
        (tmp_path / "m.yaml").write_text(text)
        places = f"{more}{os.pathsep}{home}" if more else str(home)
        environ = {**os.environ, "HETGPU_LEASES": str(tmp_path / "leases"), "HETGPU_STACKS": places}
        argv = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "--hetgpu-matrix", "m.yaml")
        done = subprocess.run(
            [*argv, *options], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        assert "INTERNALERROR" not in done.stdout + done.stderr
        folder = (tmp_path / "reports" / "latest").resolve()
        assert (folder / "index.html").is_file(), done.stdout + done.stderr
        return folder

    return ran


def condition(folder: Path, key: str) -> dict[str, Any]:
    (several,) = json.loads((folder / "boundary.json").read_text())["matrices"].values()
    found: dict[str, Any] = next(one for one in several if one["key"] == key)
    return found


def results(record: RunRecord, result: TrialResult) -> set[str]:
    return {one.settings for one in record.trials if one.result == result.value}


NOT_LET_IN = """\
name: b
hardware: {cpu: {}}
axes:
  placement: {two: [cpu, cpu]}
  transport: {ucx-tcp: {family: ucx}}
  workload: {allreduce: {sizes: 8..1K}}
  stack: [openmpi-5]
  let_in: {by-any: {}, by-rdma: {mca: {opal_common_ucx_tls: "rc,dc"}}}
"""


def test_ucx_that_is_not_let_in_has_one_cure(run: Callable[..., Path]) -> None:
    folder = run(NOT_LET_IN, "--hetgpu-remedies", "--hetgpu-controls", "4")
    record = read_run(folder)
    assert results(record, TrialResult.CURED) == {"opal_common_ucx_tls=any"}
    assert results(record, TrialResult.OTHER_TRANSPORT) == {"pml=ob1"}
    assert len(results(record, TrialResult.NO_EFFECT)) >= 6
    one = condition(folder, "no-component@pml")
    assert one["where"].startswith("let_in=by-rdma")
    assert one["state"] == "established"


NOT_PINNED = """\
name: c
hardware: {cpu: {}}
axes:
  placement: {two: [cpu, cpu]}
  transport: {ob1: {family: ob1, mca: {btl_tcp_if_exclude: "127.0.0.1/8,sppp"}, btl: [tcp, self]}}
  workload: {allreduce: {sizes: 8, timeout: 5}}
  stack: [openmpi-5]
"""


@pytest.fixture
def bridge_without_carrier(lacking: Lacking) -> Iterator[None]:
    """A second bridge on this machine with an address and nothing behind it, as dockerd leaves one."""
    ip = shutil.which("ip")
    if ip is None or os.geteuid():
        lacking("ip", "needs root, and ip of iproute2: apt-get install iproute2")
        return
    if "fe80" not in Path("/proc/net/if_inet6").read_text():
        lacking("ip", "needs an interface with IPv6")

    def call(*words: str) -> None:
        subprocess.run([str(ip), *words], check=True)

    call("link", "add", BRIDGE, "type", "bridge")
    try:
        call("address", "add", "10.213.77.1/24", "dev", BRIDGE)
        call("link", "set", BRIDGE, "up")
        yield
    finally:
        call("link", "delete", BRIDGE)


@pytest.mark.nightly(reason="half a minute of real jobs; a cure of UCX runs on each push")
@pytest.mark.usefixtures("bridge_without_carrier")
def test_ob1_without_an_interface_has_several_cures(run: Callable[..., Path]) -> None:
    record = read_run(run(NOT_PINNED, "--hetgpu-remedies"))
    cured = results(record, TrialResult.CURED)
    assert "btl_tcp_if_include=lo" in cured
    assert any(one.startswith("btl_tcp_if_exclude=127.0.0.1/8,") for one in cured)
    assert "btl_tcp_disable_family=6" in cured
    assert "smsc=^cma" in results(record, TrialResult.NO_EFFECT)


SIZES = [f"{8 << step}" for step in range(18)]
GUARDED = f"""\
name: a
hardware: {{cpu: {{}}}}
axes:
  placement: {{two: [cpu, cpu]}}
  transport: {{ucx-tcp: {{family: ucx}}}}
  workload: {{guarded_send: {{}}}}
  stack: [openmpi-5]
  size: {{{", ".join(f"{size}: {{sizes: {size}}}" for size in SIZES)}}}
"""


@pytest.mark.nightly(reason="a minute of real jobs")
def test_the_size_at_which_a_crash_becomes_another(run: Callable[..., Path]) -> None:
    (one,) = read_run(run(GUARDED, "--hetgpu-bisect", "size")).bisected
    assert one.text.startswith(f"{CRASH} to 2048, ")
    assert " from 4096" in one.text


MANY = """\
name: d
hardware: {cpu: {}}
axes:
  placement: {two: {nodes: [cpu, cpu], ranks_per_node: 2}}
  transport: {ucx-tcp: {family: ucx}}
  workload: {guarded_send: {sizes: [8, 16, 32, 64, 128]}}
  stack: [openmpi-5]
  tuning:
    many:
      mca: {opal_progress_yield_when_idle: 1, mpi_yield_when_idle: 1, coll_tuned_priority: 30, osc_base_verbose: 0}
      env:
        UCX_LOG_LEVEL_TRIGGER: fatal
        UCX_TCP_SNDBUF: 1M
        UCX_TCP_RCVBUF: 1M
        UCX_TCP_NODELAY: y
        UCX_TCP_KEEPIDLE: 10s
        UCX_MEMTYPE_CACHE: n
        UCX_RNDV_THRESH: 64K
        UCX_TCP_TX_SEG_SIZE: 8K
        UCX_TCP_RX_SEG_SIZE: 64K
        UCX_MAX_EAGER_RAILS: 1
        UCX_ADAPTIVE_PROGRESS: y
"""


@pytest.mark.nightly(reason="a minute of real jobs")
def test_the_smallest_job_of_many_settings(run: Callable[..., Path]) -> None:
    (one,) = read_run(run(MANY, "--hetgpu-minimise")).smallest
    assert one.key == CRASH
    assert one.settings_before >= 20
    assert (one.ranks, one.points, one.same) == (2, ("size 8",), 3)
    assert len(one.settings) <= 4
    assert one.tries <= 34


MPICH = """\
name: e
hardware: {cpu: {}}
axes:
  placement: {two: [cpu, cpu]}
  transport: {shm: {}}
  workload: {guarded_send: {sizes: 64K}}
  stack: [mpich]
"""
VERSIONS = ("3.4.3", "4.0.3", "4.1.3", "4.2.3", "4.3.2", "5.0.0")


@pytest.mark.nightly(reason="installs six versions of MPICH, and runs a minute of real jobs")
def test_the_version_from_which_a_crash_is_another(
    run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("versions")
    for version in VERSIONS:
        place = home / f"mpich@{version}"
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        packages = (f"mpich=={version}", "mpi4py==4.1.2", "numpy==2.2.6")
        subprocess.run([place / "bin/pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
    (one,) = read_run(run(MPICH, "--hetgpu-bisect", "stack", stack="mpich", more=str(home))).bisected
    assert " to 4.3.2, process_vm_readv-failed@copy_iovs from 5.0.0 " in one.text
