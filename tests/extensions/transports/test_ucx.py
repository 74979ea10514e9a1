"""ucx: its settings on a node, and its allowed components."""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports.base import Rendering
from pytest_hetgpu.extensions.transports.ucx import Ucx, UcxSettings
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Fabric, Hardware, Node, Stack

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
NODE = Node(0, Hardware("cpu"), "localhost", 1)
WIRED = Node(0, Hardware("cpu", fabric=Fabric(netdev="ens5")), "localhost", 1)

ANY = {
    "coll": "^acoll,fca,hcoll,sm,smdirect,xhc",
    "pml": "ucx",
    "opal_common_ucx_tls": "any",
    "opal_common_ucx_devices": "any",
    "ompi_display_comm": "mpi_init",
}


def ucx(**settings: Any) -> Ucx:
    return Ucx(UcxSettings.model_validate(settings))


def test_open_mpi_is_told_to_let_ucx_in() -> None:
    assert ucx().render(NODE, STACK) == Rendering(ANY, {"UCX_TLS": "tcp,self", "UCX_LOG_LEVEL": "info"})


def test_release_4_shows_its_layers_instead_of_a_table() -> None:
    four = replace(STACK, version="4.1.8")
    shown = {"pml_base_verbose": "10", "btl_base_verbose": "1", "opal_common_ofi_verbose": "1"}
    mca = {name: value for name, value in ANY.items() if name != "ompi_display_comm"} | shown
    assert ucx().render(NODE, four) == Rendering(mca, {"UCX_TLS": "tcp,self", "UCX_LOG_LEVEL": "info"})


def test_mpich_sends_everything_through_its_network_module() -> None:
    env = {
        "MPIR_CVAR_CH4_NETMOD": "ucx",
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_DEBUG_SUMMARY": "2",
        "UCX_TLS": "posix,self",
        "UCX_LOG_LEVEL": "info",
    }
    mpich = Stack("mpich", "MPICH", "5.0.2", "/s", "/s/bin/mpirun", "/s/bin/python")
    assert ucx(tls=["posix", "self"]).render(NODE, mpich) == Rendering({}, env)
    assert ucx().render(WIRED, mpich).env["UCX_NET_DEVICES"] == "ens5"
    assert ucx().unsuitable(mpich) is None


def test_devices_are_the_transports_or_the_fabrics_or_ucx_s_own_choice() -> None:
    assert "UCX_NET_DEVICES" not in ucx().render(NODE, STACK).env
    assert ucx().render(WIRED, STACK).env["UCX_NET_DEVICES"] == "ens5"
    assert ucx(net_devices=["mlx5_0:1", "eth0"]).render(WIRED, STACK).env["UCX_NET_DEVICES"] == "mlx5_0:1,eth0"


ROCE = Fabric("roce", "ens5f0", "mlx5_0", 3)


@pytest.mark.parametrize(
    ("tls", "fabric", "devices"),
    [
        *((tls, ROCE, "mlx5_0:1") for tls in ("rc", "ud", "dc", "ib", "rc_x", "rc_verbs", "dc_mlx5", "all", "any")),
        # UCX_NET_DEVICES restricts tcp as it does RDMA: a list that names both needs a device of each.
        (["self", "tcp", "rc"], ROCE, "mlx5_0:1,ens5f0"),
        (["rc", "tcp"], Fabric("infiniband", "ib0", "mlx5_1"), "mlx5_1:1,ib0"),
        (["rc", "tcp"], Fabric("infiniband", hca="mlx5_1"), "mlx5_1:1"),
        (["rc_x", "sm", "self", "cuda_copy", "cuda_ipc"], ROCE, "mlx5_0:1"),
        (["rc", "tcp", "rocm_copy", "rocm_ipc"], replace(ROCE, hca="mlx5_0:2"), "mlx5_0:2,ens5f0"),
        ("rc", replace(ROCE, hca="mlx5_bond_0"), "mlx5_bond_0:1"),
        ("rc", replace(ROCE, hca="mlx5_bond_0:2"), "mlx5_bond_0:2"),
        (["rc", "tcp"], Fabric("roce", "bond0", "mlx5_bond_0"), "mlx5_bond_0:1,bond0"),
        ("rc", Fabric("infiniband", hca="mlx5_1"), "mlx5_1:1"),
        ("rc", Fabric("infiniband", "ib0", "mlx5_1"), "mlx5_1:1"),
        # While the HCA is not known (or of several ports UCX is to choose), an interface would leave RDMA without any.
        ("rc", Fabric("roce", "ens5f0"), None),
        ("rc", Fabric("infiniband", "ib0"), None),
        ("all", Fabric("infiniband", "ib0"), None),
        (["rc", "tcp"], Fabric("infiniband", "ib0"), None),
        ("rc", Fabric("roce"), None),
        ("all", Fabric("tcp", "ens5"), "ens5"),
        (["tcp", "self", "cuda_copy"], ROCE, "ens5f0"),
        (["tcp", "rocm", "self"], Fabric("infiniband", "ib0", "mlx5_1"), "ib0"),
        # Shared memory has no device.
        ("posix", ROCE, None),
        (["sm", "self", "cuda"], ROCE, None),
        # Ranks there have a UCX_NET_DEVICES of the fabric's, which would leave these transports without a device.
        ("tcp", Fabric("roce", hca="mlx5_0"), "all"),
        # What finds the HCA on the node would name it alone.
        ("tcp", Fabric("roce"), "all"),
        # An interface alone would leave the RDMA of such lists without a device, whatever connects the nodes.
        *((tls, Fabric("efa", "ens5"), None) for tls in ("all", ["srd", "tcp"], ["ud", "tcp"], ["gga_mlx5", "tcp"])),
        *(([name, "tcp", "self"], Fabric("tcp", "ens5"), None) for name in ("rc", "srd", "gga", "ugni", "ugni_rdma")),
        ("all", Fabric("slingshot", "hsn0"), None),
        (["srd", "tcp"], Fabric("efa", "ens5", "rdmap0s6"), "rdmap0s6:1,ens5"),
        (["gga", "self"], ROCE, "mlx5_0:1"),
        (["tcp", "self"], Fabric("efa", "ens5"), "ens5"),
    ],
)
def test_rdma_goes_through_the_hca_and_the_rest_through_the_interface(
    tls: object, fabric: Fabric, devices: str | None
) -> None:
    node = Node(0, Hardware("kind", fabric=fabric), "10.0.0.5", 1)
    assert ucx(tls=tls).render(node, STACK).env.get("UCX_NET_DEVICES") == devices
    assert ucx(tls=tls, net_devices="mlx5_9:1").render(node, STACK).env["UCX_NET_DEVICES"] == "mlx5_9:1"


@pytest.mark.parametrize("tls", ["all", ["rc", "self"], ["rc", "tcp", "self"], ["tcp", "self"]])
def test_devices_that_the_hardware_names_stay(tls: object) -> None:
    kind = Hardware("rail", fabric=ROCE, env={"UCX_NET_DEVICES": "mlx5_1:1"})
    node = Node(0, kind, "10.0.0.5", 1, interface=InterfaceChoice("ens5f0", "seen"))
    assert ucx(tls=tls).interface(node) == InterfaceChoice("mlx5_1:1", "UCX_NET_DEVICES of rail names it")
    assert ucx(tls=tls).render(node, STACK).env["UCX_NET_DEVICES"] == "mlx5_1:1"
    assert ucx(tls=tls, net_devices="mlx5_9:1").render(node, STACK).env["UCX_NET_DEVICES"] == "mlx5_9:1"
    assert ucx(tls=["posix", "self"]).interface(node) is None


def test_a_member_that_is_not_known_may_be_rdma() -> None:
    new = {"tls": ["new", "tcp"], "carried_by": "any"}
    assert "UCX_NET_DEVICES" not in ucx(**new).render(WIRED, STACK).env
    wired = Node(0, Hardware("kind", fabric=ROCE), "10.0.0.5", 1)
    assert ucx(**new).render(wired, STACK).env["UCX_NET_DEVICES"] == "mlx5_0:1,ens5f0"


@pytest.mark.parametrize(
    ("tls", "settings", "chosen", "enabled"),
    [
        (["tcp", "self"], {}, InterfaceChoice("vmbr0", "seen", "bridge"), True),
        (["rc", "tcp", "self"], {}, InterfaceChoice("vmbr0", "seen", "bridge"), True),
        (["rc", "self"], {}, InterfaceChoice("vmbr0", "seen", "bridge"), False),
        (["tcp", "self"], {}, InterfaceChoice("virbr0", "the fabric names it"), True),
        (["tcp", "self"], {"net_devices": ["eth0", "br-4f"]}, None, True),
        (["tcp", "self"], {}, InterfaceChoice("eth0", "seen"), False),
    ],
)
def test_a_bridge_is_used_only_if_ucx_is_told(
    tls: object, settings: dict[str, Any], chosen: InterfaceChoice | None, enabled: bool
) -> None:
    node = Node(0, Hardware("kind", fabric=Fabric("roce", hca="mlx5_0")), "10.0.0.5", 1, interface=chosen)
    assert ("UCX_TCP_BRIDGE_ENABLE" in ucx(tls=tls, **settings).render(node, STACK).env) is enabled


def test_ucx_s_own_word_for_any_is_all() -> None:
    assert ucx(tls="any").render(NODE, STACK).env["UCX_TLS"] == "all"
    assert ucx(tls="all").render(NODE, STACK).env["UCX_TLS"] == "all"


@pytest.mark.parametrize(
    ("tls", "good", "bad"),
    [
        (["tcp", "self"], ["ucx/tcp"], ["ucx/posix", "ucx/tcp2", "ob1/tcp"]),
        (["sm", "self"], ["ucx/posix", "ucx/sysv", "ucx/cma"], ["ucx/tcp", "ob1/sm"]),
        (["rc", "cuda_copy"], ["ucx/rc_mlx5", "ucx/ud_verbs", "ucx/cuda_copy"], ["ucx/tcp", "ucx/dc_mlx5"]),
        (["tcp", "cuda", "rocm"], ["ucx/tcp", "ucx/cuda_ipc", "ucx/gdr_copy", "ucx/rocm_copy"], ["ucx/posix"]),
        ("all", ["ucx/tcp", "ucx/anything"], ["ob1/tcp", "ofi"]),
    ],
)
def test_components_are_globs_over_what_may_carry_data(tls: object, good: list[str], bad: list[str]) -> None:
    globs = ucx(tls=tls).components()
    assert all(any(fnmatch.fnmatchcase(name, glob) for glob in globs) for name in good)
    assert not any(fnmatch.fnmatchcase(name, glob) for name in bad for glob in globs)
    assert "ucx/self" not in globs


def test_components_are_each_once() -> None:
    assert ucx(tls=["sm", "posix", "shm"]).components() == ("ucx/posix", "ucx/sysv", "ucx/cma", "ucx/knem", "ucx/xpmem")


def test_its_proof_is_a_fresh_reader() -> None:
    assert isinstance(ucx().parser(), MpiTransportParser)
    assert ucx().parser() is not ucx().parser()
