"""MPI windows: what pins their component per release, and the component that a log shows."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports.auto import Auto
from pytest_hetgpu.extensions.transports.base import Transport, TransportSettings
from pytest_hetgpu.extensions.transports.gloo import Gloo, GlooSettings
from pytest_hetgpu.extensions.transports.ob1 import Ob1, Ob1Settings
from pytest_hetgpu.extensions.transports.ofi import Ofi, OfiSettings
from pytest_hetgpu.extensions.transports.shm import Shm
from pytest_hetgpu.extensions.transports.ucc import Ucc, UccSettings
from pytest_hetgpu.extensions.transports.ucx import Ucx, UcxSettings
from pytest_hetgpu.model.job import Stack
from tests.extensions.transports.test_mpi_log import fed

FIVE = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
FOUR = Stack("openmpi-4", "Open MPI", "4.1.8", "/s", "/s/bin/mpirun", "/s/bin/python")
HYDRA = Stack("mpich", "MPICH", "5.0.2", "/s", "/s/bin/mpirun", "/s/bin/python")
LOGGED = {"osc_base_verbose": "60"}
LAST = {"osc_sm_priority": "1", **LOGGED}

TCP = Ob1(Ob1Settings())
BOTH = Ob1(Ob1Settings.model_validate({"btl": ["tcp", "vader", "self"]}))
SHM = Shm(TransportSettings())
UCX = Ucx(UcxSettings())
OFI = Ofi(OfiSettings())
AUTO = Auto(TransportSettings())
UCC = Ucc(UccSettings(over="below"), UCX)


@pytest.mark.parametrize(
    ("transport", "four", "five", "components"),
    [
        (TCP, {"osc": "pt2pt"}, LAST, "osc/rdma:tcp"),
        (BOTH, {"osc": "sm,pt2pt"}, LOGGED, "osc/rdma:tcp osc/rdma:sm osc/sm osc/rdma:memory"),
        (SHM, {"osc": "sm,pt2pt"}, LOGGED, "osc/rdma:sm osc/sm osc/rdma:memory"),
        (UCX, {"osc": "ucx"}, LAST, "ucx/tcp"),
        (UCC, {"osc": "ucx"}, LAST, "ucx/tcp"),
        (OFI, {"osc": "pt2pt"}, LAST, "osc/rdma:ofi"),
        (AUTO, {}, LOGGED, "*"),
    ],
)
def test_a_benchmark_of_windows_is_pinned_as_the_release_can(
    transport: Transport, four: dict[str, str], five: dict[str, str], components: str
) -> None:
    old, new = transport.one_sided(FOUR, benchmark=True), transport.one_sided(FIVE, benchmark=True)
    assert old is not None
    assert new is not None
    assert (old[0].mca, new[0].mca) == (four, five)
    assert new[1].components == tuple(components.split())
    assert (old[1].pinned, new[1].logged) == (bool(four), True)


@pytest.mark.parametrize("transport", [TCP, SHM, UCX, OFI])
def test_a_program_that_may_use_windows_keeps_those_that_only_shared_memory_has(transport: Transport) -> None:
    old, new = transport.one_sided(FOUR, benchmark=False), transport.one_sided(FIVE, benchmark=False)
    assert old is not None
    assert new is not None
    assert (dict(old[0].mca), "osc" in new[0].mca) == ({}, False)


@pytest.mark.parametrize(("transport", "netmod"), [(UCX, "ucx"), (OFI, "ofi")])
def test_without_shared_memory_mpich_has_its_network_module_alone(transport: Transport, netmod: str) -> None:
    found = transport.one_sided(HYDRA, benchmark=True)
    assert found is not None
    assert found[0].env == {"MPIR_CVAR_CH4_NETMOD": netmod, "MPIR_CVAR_NOLOCAL": "1"}
    assert found[1].pinned


def test_torch_has_no_windows_of_mpi() -> None:
    assert Gloo(GlooSettings()).one_sided(FIVE, benchmark=False) is None


# Open MPI 5.0.11 at osc_base_verbose 60; MPI_Win_create and MPI_Win_allocate of two ranks of one host over btl tcp.
CREATED = """\
[vm:27319] select: component rdma selected
[vm:27320] select: component rdma selected
[vm:27320] creating osc/rdma window of flavor 1 with id 3
[vm:27319] creating osc/rdma window of flavor 1 with id 3
[vm:27319] accelerated_query: no suitable btls found
[vm:27319] could not find an accelerated btl. falling back on active-message BTLs
[vm:27319] found alternate btl self
[vm:27319] found alternate btl tcp
[vm:27319] allocating shared internal state
[vm:27320] allocating shared internal state
[vm:27320] rank 1: alternate btl search for peer 0
[vm:27319] rank 0 comparing with btl self, 0
[vm:27319] rank 0 found btl for peer 0 (self, 0, rdma)
[vm:27320] rank 1 comparing with btl tcp, 1
[vm:27320] rank 1 found btl for peer 0 (tcp, 1, rdma)
[vm:27319] rank 0 found btl for peer 1 (tcp, 1, rdma)
[vm:27320] finished creating osc/rdma window with id 3
"""
ALLOCATED = CREATED.replace("flavor 1", "flavor 2")
APART = ALLOCATED.replace("shared internal", "private internal")
# Its own network adapter carries windows: osc_rdma_component.c.
ACCELERATED = "[vm:1] accelerated_query: selected btl: ofi\n"
SHARED = "[vm:27335] select: component sm selected\n"
# UCX 1.20 below osc/ucx, 1.13 below osc/ucx of Debian's 4.1.4; two ranks over tcp.
LANES = """\
[1795741106.223760] [vm:27575:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 intra-node cfg#1 tag(tcp/eth0)
[1795741113.345319] [vm:27736:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_1 self cfg#0 rma(self/memory)  amo(self/memory)
[1795741106.629092] [vm:27576:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_1 intra-node cfg#0 rma_am(tcp/eth0)  amo_am(tcp/eth0)
"""  # noqa: E501
OLD_LANES = """\
[1795741258.540062] [vm:1735 :0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(tcp/lo tcp/eth0)
[1795741258.821654] [vm:1735 :0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: rma(self/memory0) amo(self/memory0)
[1795741258.821867] [vm:1735 :0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: rma_am(tcp/lo) amo_am(tcp/lo)
"""
# MPICH 5.0.2 lists all lanes in one line.
MPICH = """\
UCX netmod Capability
[1795741143.717360] [vm:28461:0]   ucp_worker.c:1912 UCX  INFO    ucp_context_0 intra-node cfg#1 tag(sysv/memory cma/memory)  rma(sysv/memory posix/memory)  am(sysv/memory cma/memory)
"""  # noqa: E501
LOCAL = "Rank: 0, Local_rank: 0 [ 0, 0 ]\nRank: 1, Local_rank: 1 [ 0, 0 ]\n"


def windows(text: str) -> dict[str, Any]:
    reader = MpiTransportParser()
    fed(reader, text)
    found: dict[str, Any] = {}
    for one in sorted(reader.windows):
        found.setdefault(one.path, []).append("+".join(one.components) + "?" * bool(one.unsure))
    return {path: " ".join(names) for path, names in found.items()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CREATED, {"unknown": "osc/rdma:tcp"}),
        (ALLOCATED, {"on-host": "osc/rdma:memory", "unknown": "osc/rdma:tcp"}),
        (APART, {"unknown": "osc/rdma:tcp"}),
        (ACCELERATED, {"unknown": "osc/rdma:ofi"}),
        (SHARED, {"on-host": "osc/sm"}),
        (LANES, {"on-host": "ucx/tcp"}),
        (OLD_LANES, {"unknown": "ucx/tcp"}),
        (MPICH, {"on-host": "ucx/posix+ucx/sysv"}),
        (MPICH + LOCAL, {"on-host": "ch4/posix ucx/posix+ucx/sysv?"}),
        # The point-to-point layer logs its component in the same words.
        ("[vm:1] select: component ob1 selected\n[vm:1] select: component ucx selected\n", {}),
    ],
)
def test_the_component_that_a_log_shows(text: str, found: dict[str, str]) -> None:
    assert windows(text) == found


def test_lanes_of_windows_are_none_of_messages() -> None:
    reader = MpiTransportParser()
    fed(reader, OLD_LANES)
    assert reader.transports == ("ucx/tcp",)
    assert {one.components for one in reader.connections} == {("ucx/tcp",)}
