"""All three stacks on hosts whose network misleads the libraries: each transport ends, and is ok."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.hosts_here import CELLS, MATRIX, PLACEMENTS, Host, cells, host, lacks

pytestmark = [pytest.mark.real, pytest.mark.beside]

Stacks = Callable[[str], Path]
Runs = Callable[[Host], dict[str, dict[str, str]]]


@pytest.fixture
def run_on(
    tmp_path: Path, stacks_here: Stacks, lacking: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> Runs:
    """Run the matrix on a host; gives the properties of each cell."""
    if why := lacks("iptables"):
        lacking("netns", why)
    for name in PLACEMENTS:
        (tmp_path / "stacks").mkdir(exist_ok=True)
        (tmp_path / "stacks" / name).symlink_to(stacks_here(name).resolve())
    monkeypatch.setenv("HETGPU_STACKS", str(tmp_path / "stacks"))
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path / "leases"))
    monkeypatch.chdir(tmp_path)
    Path("hosts.yaml").write_text(MATRIX)

    def run(there: Host) -> dict[str, dict[str, str]]:
        options = ("--hetgpu-matrix", "hosts.yaml", "--hetgpu-reports", "reports", "--hetgpu-timeout", "20")
        argv = (*there.inside, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options)
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=500)
        assert Path("reports/latest").exists(), done.stdout + done.stderr
        return cells(Path("reports"))

    return run


def verdicts(ran: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: cell["verdict"] for name, cell in ran.items()}


def test_beside_a_container_network(run_on: Runs) -> None:
    """The rule of the engine rewrites the source of connections inside the host to another address."""
    with host("engine") as there:
        there.ethernet()
        there.container_network()
        assert verdicts(run_on(there)) == CELLS


# What `ofi` asks of MPICH, without the interface.
UNPINNED = """\
name: unpinned
hardware: {mpich: {platform: cpu, mpi: {stack: mpich}}}
axes:
  placement: {two: [mpich, mpich]}
  transport:
    free: {family: auto, env: {MPIR_CVAR_CH4_NETMOD: ofi, MPIR_CVAR_NOLOCAL: 1, FI_PROVIDER: tcp}}
    eth0: {family: auto, env: {MPIR_CVAR_CH4_NETMOD: ofi, MPIR_CVAR_NOLOCAL: 1, FI_PROVIDER: tcp, FI_TCP_IFACE: eth0}}
  workload: {send_recv: {sizes: 8, iterations: 3, warmup: 1, repeats: 1, timeout: 5}}
"""


def test_a_container_network_misleads_a_library_that_is_left_to_itself(run_on: Runs) -> None:
    """The control for the test above."""
    Path("hosts.yaml").write_text(UNPINNED)
    with host("free") as there:
        there.ethernet()
        there.container_network()
        outcomes = {name: cell["outcome"] for name, cell in run_on(there).items()}
    assert outcomes == {"two-free-send_recv": "hang", "two-eth0-send_recv": "passed"}


def test_a_laptop_with_a_vpn(run_on: Runs, lacking: Callable[[str, str], None]) -> None:
    """IPv6 by link-local addresses alone, an interface without a carrier, a tunnel that took the default route."""
    if not Path("/dev/net/tun").exists():
        lacking("netns", "there is no /dev/net/tun: modprobe tun")
    with host("laptop") as there, there.vpn():
        there.wire("eth0", plugged=False)
        there.address("eth0", "192.168.7.2/24")
        there.wire("wlan0")
        there.address("wlan0", "192.168.9.2/24")
        there.wire("usb0")
        assert verdicts(run_on(there)) == CELLS


LOOPBACK = {"openmpi-5-ucx-tcp", "openmpi-5-ofi-tcp", "openmpi-4-ofi-tcp", "mpich-ucx-tcp"}


def test_a_container_without_a_network(run_on: Runs) -> None:
    """Three of four stacks' layers work over lo; the others are skipped, and the reason says why."""
    with host("none") as there:
        ran = run_on(there)
    expected = {
        name: "not_run" if name.removesuffix("-send_recv") in LOOPBACK else good for name, good in CELLS.items()
    }
    assert verdicts(ran) == expected
    for name in LOOPBACK:
        assert "does not connect ranks over lo" in ran[f"{name}-send_recv"]["why"]
