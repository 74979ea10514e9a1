"""The interface that an MPI is pinned to, and its use by each transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes.process.interface_names import kind_of
from pytest_hetgpu.extensions.runtimes.process.interfaces import network_here
from pytest_hetgpu.model.interfaces import Interface, InterfaceChoice, Network, choose_interface
from pytest_hetgpu.model.job import Job
from tests.planning.plan_cases import ALL, Plans, plans

__all__ = ["plans"]

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
LO = Interface("lo", kind="loopback")
ETH0 = Interface("eth0")
BRIDGE = Interface("br-4f", kind="bridge")
VPN = Interface("tun0", kind="tunnel")
UNPLUGGED = Interface("eth1", running=False)
NAMELESS = Interface("eth2", ipv4=False)


def default(name: str, metric: int = 0) -> str:
    return f"{name}\t00000000\t0100000A\t0003\t0\t0\t{metric}\t00000000\t0\t0\t0\n"


def network(*interfaces: Interface, routes: str = "") -> Network:
    return Network((LO, *interfaces), HEAD + routes)


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (network(BRIDGE, ETH0, routes=default("eth0")), InterfaceChoice("eth0", "carries the default route")),
        (
            network(Interface("eth3"), ETH0, routes=default("eth3", 100) + default("eth0", 10)),
            InterfaceChoice("eth0", "carries the default route"),
        ),
        # Engines make bridges, VPNs tunnels; what has no carrier or address leads nowhere.
        (
            network(BRIDGE, VPN, UNPLUGGED, NAMELESS, ETH0),
            InterfaceChoice("eth0", "is up with a carrier and an IPv4 address; there is no default route"),
        ),
        (
            network(ETH0, VPN, routes=default("tun0")),
            InterfaceChoice("eth0", "is up with a carrier and an IPv4 address; the default route is on tun0, a tunnel"),
        ),
        # The host's own bridge, with its adapter below it.
        (
            network(Interface("eno1", ipv4=False), Interface("br0", kind="bridge"), routes=default("br0")),
            InterfaceChoice("br0", "a bridge that carries the default route", "bridge"),
        ),
        (network(), InterfaceChoice("lo", "no other interface can be used: there is none", "loopback")),
        (
            network(BRIDGE, UNPLUGGED, NAMELESS),
            InterfaceChoice(
                "lo",
                "no other interface can be used: br-4f a bridge, eth1 without a carrier, eth2 without an IPv4 address",
                "loopback",
            ),
        ),
        (
            Network((replace(LO, running=False),)),
            InterfaceChoice("", "no other interface can be used: there is none", "nothing"),
        ),
    ],
)
def test_the_interface_of_a_job_on_one_host(there: Network, chosen: InterfaceChoice) -> None:
    assert choose_interface(there) == chosen


@pytest.mark.parametrize(
    ("name", "kind"),
    [("lo", "loopback"), ("docker0", "bridge"), ("br-0a1b", "bridge"), ("virbr0", "bridge"), ("wg0", "tunnel")]
    + [(name, "") for name in ("eth0", "ens5", "enp3s0f1np1", "ib0", "bond0", "hsn0", "br0", "vlan7")],
)
def test_kinds_by_the_names_that_engines_and_vpns_give(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_the_interfaces_of_this_machine() -> None:
    there = network_here()
    assert there
    (loopback,) = (one for one in there.interfaces if one.kind == "loopback")
    assert loopback == LO
    assert there.routes.startswith("Iface")
    assert choose_interface(there).name in {one.name for one in there.interfaces}


def test_what_the_kernel_and_sysfs_say_of_interfaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {
        "lo": "up,loopback,running",
        "net7": "up,broadcast,running",
        "wire": "up,pointopoint",
        "eth0": "up,running",
    }
    rows = {"lo": "127.0.0.1", "net7": "172.18.0.1", "wire": "10.8.0.2", "eth0": "169.254.7.7"}
    family = SimpleNamespace(name="AF_INET")
    monkeypatch.setattr(
        psutil,
        "net_if_stats",
        lambda: {name: SimpleNamespace(isup="running" in text, flags=text) for name, text in flags.items()},
    )
    monkeypatch.setattr(
        psutil,
        "net_if_addrs",
        lambda: {name: [SimpleNamespace(family=family, address=text)] for name, text in rows.items()},
    )
    (tmp_path / "net7" / "bridge").mkdir(parents=True)
    there = network_here(tmp_path)
    assert there
    assert there.interfaces == (
        LO,
        Interface("net7", kind="bridge"),
        Interface("wire", running=False, kind="tunnel"),
        Interface("eth0", ipv4=False),
    )


def test_interfaces_that_the_kernel_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise PermissionError

    monkeypatch.setattr(psutil, "net_if_stats", refused)
    assert network_here() is None


TEXT = """\
name: net
hardware:
  cpu:
  own: {env: {FI_TCP_IFACE: ib0, UCX_NET_DEVICES: ib0}, mca: {btl_tcp_if_include: ib0}}
  wired: {fabric: {netdev: ens9}}
axes:
  placement: {two: [cpu, cpu], user: [own, own], named: [wired, wired]}
  transport:
    ob1: {}
    sm: {family: ob1, btl: [sm, self]}
    shm: {}
    auto: {}
    ucx: {}
    ucx-shm: {family: ucx, tls: [posix, self]}
    ucx-both: {family: ucx, tls: [tcp, sm, self]}
    ucx-all: {family: ucx, tls: all}
    ofi: {}
    ofi-own: {family: ofi, netdev: eth7}
    ucx-own: {family: ucx, net_devices: lo}
    ofi-psm: {family: ofi, provider: psm3}
    ucc: {over: ucx}
  workload: {allreduce: {sizes: 8}}
  stack: [openmpi-5, openmpi-4, mpich]
"""
HOST = replace(ALL, network=network(BRIDGE, ETH0, routes=default("eth0")))
LONE = replace(ALL, network=network())
DOWN = replace(ALL, network=Network((replace(LO, running=False),)))
TCP = {"ob1": "btl_tcp_if_include eth0", "ucx": "UCX_NET_DEVICES=eth0", "ofi": "FI_TCP_IFACE=eth0"}


def line(job: Job) -> str:
    return " ".join(job.command.argv)


@pytest.mark.parametrize("stack", ["openmpi-5", "openmpi-4", "mpich"])
@pytest.mark.parametrize("transport", ["ob1", "ucx", "ucx-both", "ofi", "ucc"])
def test_every_transport_over_tcp_is_pinned_on_every_stack(plans: Plans, transport: str, stack: str) -> None:
    if (transport, stack) == ("ob1", "mpich"):
        return
    job = plans(f"two-{transport}-allreduce-{stack}", TEXT, HOST)
    assert TCP[transport.partition("-")[0].replace("ucc", "ucx")] in line(job)
    assert [str(node.interface) for node in job.nodes] == [
        "eth0 (carries the default route; the fabric names none)"
    ] * 2


@pytest.mark.parametrize("stack", ["openmpi-5", "openmpi-4", "mpich"])
@pytest.mark.parametrize("transport", ["sm", "shm", "auto", "ucx-shm", "ucx-all", "ofi-psm"])
def test_what_needs_no_interface_is_given_none(plans: Plans, transport: str, stack: str) -> None:
    if (transport, stack) == ("sm", "mpich"):
        return
    job = plans(f"two-{transport}-allreduce-{stack}", TEXT, HOST)
    assert "eth0" not in line(job)
    assert {node.interface for node in job.nodes} == {None}


@pytest.mark.parametrize("transport", ["ob1", "ucx", "ofi"])
def test_what_the_matrix_names_wins(plans: Plans, transport: str) -> None:
    by_fabric = plans(f"named-{transport}-allreduce-openmpi-5", TEXT, HOST)
    assert TCP[transport].replace("eth0", "ens9") in line(by_fabric)
    assert str(by_fabric.nodes[0].interface) == "ens9 (the fabric of wired names it)"
    pin = TCP[transport].replace("=", " ").split()[0]
    by_hardware = plans(f"user-{transport}-allreduce-openmpi-5", TEXT, HOST)
    assert TCP[transport].replace("eth0", "ib0") in line(by_hardware)
    assert str(by_hardware.nodes[0].interface) == f"ib0 ({pin} of own names it)"
    text = TEXT + f"  tuning: {{a: {{{'mca' if transport == 'ob1' else 'env'}: {{{pin}: eth5}}}}}}\n"
    for placement in ("two", "user", "named"):
        by_cell = plans(f"{placement}-{transport}-allreduce-openmpi-5-a", text, LONE)
        assert TCP[transport].replace("eth0", "eth5") in line(by_cell)
        assert str(by_cell.nodes[1].interface) == f"eth5 ({pin} of the cell names it)"


EXCLUDE = "btl_tcp_if_exclude: docker0"


@pytest.mark.parametrize("form", [f"mca: {{{EXCLUDE}}}", f"env: {{OMPI_MCA_{EXCLUDE}}}"])
def test_a_matrix_that_rules_interfaces_out_is_given_none(plans: Plans, form: str) -> None:
    """Open MPI refuses both parameters together."""
    by_cell = plans("two-ob1-allreduce-openmpi-5-a", f"{TEXT}  tuning: {{a: {{{form}}}}}\n", HOST)
    by_hardware = plans("two-ob1-allreduce-openmpi-5", TEXT.replace("  cpu:\n", f"  cpu: {{{form}}}\n"), HOST)
    for job, who in ((by_cell, "the cell"), (by_hardware, "cpu")):
        assert "if_include" not in line(job)
        assert "btl_tcp_if_exclude" in line(job)
        assert str(job.nodes[0].interface) == f"none is pinned (btl_tcp_if_exclude of {who} rules out docker0)"


def test_of_two_parameters_that_exclude_each_other_the_one_that_wins_is_given(plans: Plans) -> None:
    text = TEXT.replace("    ob1: {}\n", "    ob1: {netdev: eth7}\n")
    job = plans("two-ob1-allreduce-openmpi-5", text.replace("  cpu:\n", f"  cpu: {{mca: {{{EXCLUDE}}}}}\n"), HOST)
    assert "btl_tcp_if_include eth7" in line(job)
    assert "if_exclude" not in line(job)
    by_cell = plans("two-ob1-allreduce-openmpi-5-a", f"{text}  tuning: {{a: {{mca: {{{EXCLUDE}}}}}}}\n", HOST)
    assert "if_include" not in line(by_cell)
    assert str(by_cell.nodes[0].interface) == "none is pinned (btl_tcp_if_exclude of the cell rules out docker0)"


def test_a_bridge_of_this_machine_that_the_fabric_names(plans: Plans) -> None:
    bridged = replace(ALL, network=network(Interface("ens9", kind="bridge"), ETH0, routes=default("eth0")))
    assert "UCX_NET_DEVICES=ens9 UCX_TCP_BRIDGE_ENABLE=y" in line(plans("named-ucx-allreduce-openmpi-5", TEXT, bridged))


def test_the_transport_s_own_key_wins_over_the_hardware(plans: Plans) -> None:
    job = plans("user-ofi-own-allreduce-mpich", TEXT.replace("mca: {btl_tcp_if_include: ib0}", ""), HOST)
    assert "FI_TCP_IFACE=eth7" in line(job)
    assert str(job.nodes[0].interface) == "eth7 (netdev of the transport names it)"


def test_ucx_takes_a_bridge_only_when_told(plans: Plans) -> None:
    bridged = replace(ALL, network=network(Interface("br0", kind="bridge"), routes=default("br0")))
    assert "UCX_NET_DEVICES=br0 UCX_TCP_BRIDGE_ENABLE=y" in line(plans("two-ucx-allreduce-openmpi-5", TEXT, bridged))
    assert "FI_TCP_IFACE=br0" in line(plans("two-ofi-allreduce-openmpi-5", TEXT, bridged))
    assert "BRIDGE" not in line(plans("two-ucx-allreduce-openmpi-5", TEXT, HOST))


RunsOrNot = Callable[[str], bool]


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (
            "ofi-allreduce-openmpi-5",
            "OFI of Open MPI does not connect ranks over lo, and node 0 (cpu on localhost) has",
        ),
        ("ofi-allreduce-openmpi-4", "OFI of Open MPI does not connect ranks over lo"),
        ("ucx-allreduce-openmpi-5", "UCX's tcp in openmpi-5 does not connect ranks over lo"),
        ("ucx-allreduce-mpich", "UCX's tcp in mpich does not connect ranks over lo"),
        ("ucc-allreduce-mpich", "UCX's tcp in mpich does not connect ranks over lo"),
    ],
)
def test_a_host_with_nothing_but_loopback(plans: Plans, cell: str, says: str) -> None:
    """Each case was tried in a network namespace with only lo."""
    with pytest.raises(NotHere) as caught:
        plans(f"two-{cell}", TEXT, LONE)
    assert str(caught.value).startswith(says)
    assert "(no other interface can be used: there is none; the fabric names none)" in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "has"),
    [
        ("ob1-allreduce-openmpi-5", "btl_tcp_if_include lo"),
        ("ucx-allreduce-openmpi-4", "UCX_NET_DEVICES=lo"),
        ("ofi-allreduce-mpich", "FI_TCP_IFACE=lo"),
        # At its word: a user may know better.
        ("ucx-own-allreduce-openmpi-5", "UCX_NET_DEVICES=lo"),
        ("ucx-both-allreduce-openmpi-5", "UCX_NET_DEVICES=lo"),
        ("shm-allreduce-mpich", ""),
    ],
)
def test_what_works_over_loopback_is_run(plans: Plans, cell: str, has: str) -> None:
    assert has in line(plans(f"two-{cell}", TEXT, LONE))


@pytest.mark.parametrize("transport", ["ob1", "shm", "auto", "ucx", "ucx-shm", "ofi", "ofi-psm", "sm"])
def test_open_mpi_s_launcher_needs_an_interface_that_is_up(plans: Plans, transport: str) -> None:
    with pytest.raises(NotHere) as caught:
        plans(f"two-{transport}-allreduce-openmpi-5", TEXT, DOWN)
    assert str(caught.value) == (
        "Open MPI needs an interface that is up, and node 0 (cpu on localhost) has none, not even lo "
        "(no other interface can be used: there is none; the fabric names none); ip link set lo up"
    )


def test_mpich_needs_none_for_shared_memory(plans: Plans) -> None:
    assert plans("two-shm-allreduce-mpich", TEXT, DOWN)
    with pytest.raises(NotHere):
        plans("two-ofi-allreduce-mpich", TEXT, DOWN)
