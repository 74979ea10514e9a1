"""Preflight warnings about networks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.model.facts import Environment, Fact, FactState
from pytest_hetgpu.model.job import Accelerator, Fabric
from pytest_hetgpu.model.verdict import Kind
from tests.cluster.preflight.preflight_cases import CPU, LUMI, NOT_TOLD, ROCE, Value, concerns, environment, job, looked

MANY_MB = str(1 << 30)
CHOSEN = "mlx5_0:1 gid 3 (net1)"
NODE: dict[str, Value] = {
    "nics": ("eth0", "net1"),
    "rdma": ("mlx5_0",),
    "rdma.roce": CHOSEN,
    "rdma.mlx5_0:1.state": "4: ACTIVE",
    "rdma.mlx5_0:1.gids": ("1 fe80:0000:0000:0000:0e42:a1ff:fe6b:2c10 net1 RoCE v2", "3 172.19.4.11 net1 RoCE v2"),
    "dev_infiniband": ("uverbs0",),
    "memlock": "unlimited",
    "cuda.devices": ("0: A100",),
    "cuda.arch": ("sm_80",),
}
RC = {"UCX_TLS": "rc,cuda_copy"}


def node(**changed: Value) -> Environment:
    return environment({**NODE, **changed})


def test_a_good_roce_node_gives_no_concern() -> None:
    assert looked(job(ROCE, ROCE, env=RC), node(), node()) == ()
    assert (
        looked(job(ROCE, ROCE, family="nccl", transports=("nccl/IB",)), node(nccl="2.21.5"), node(nccl="2.21.5")) == ()
    )


@pytest.mark.parametrize(
    ("changed", "kind", "certain"),
    [
        ({"rdma": None}, Kind.TRANSPORT_UNAVAILABLE, True),
        ({"dev_infiniband": None}, Kind.TRANSPORT_UNAVAILABLE, True),
        ({"rdma.mlx5_0:1.gids": ("0 172.19.4.11 net1 IB/RoCE v1",)}, Kind.TRANSPORT_UNAVAILABLE, True),
        ({"rdma.mlx5_0:1.state": "1: DOWN"}, Kind.TRANSPORT_UNAVAILABLE, True),
        ({"memlock": str(64 << 10)}, Kind.TRANSPORT_UNAVAILABLE, True),
        ({"memlock": str(8 << 20)}, Kind.TRANSPORT_UNAVAILABLE, False),
    ],
)
def test_what_rdma_needs(changed: dict[str, Value], kind: Kind, certain: bool) -> None:
    bad = environment({**NODE, **changed})
    assert concerns(job(ROCE, ROCE, env=RC), node(), bad) == [(kind, "node 1 (roce)", certain)]
    # Over tcp, and between ranks of one node, none of it matters.
    assert looked(job(ROCE, ROCE, env={"UCX_TLS": "tcp"}), node(), bad) == ()
    assert looked(job(ROCE, env=RC, ranks=2), bad) == ()


def test_no_gid_says_which_half_of_the_rule_failed() -> None:
    told = looked(
        job(ROCE, ROCE, env=RC),
        node(),
        environment({**NODE, "rdma.mlx5_0:1.gids": ("1 fe80:0000:0000:0000:0e42:a1ff:fe6b:2c10 net1 RoCE v2",)}),
    )
    assert told[0].why.startswith("no IPv4 RoCE v2 GID: no RoCE v2 GID on net1 maps an IPv4 address")


def test_a_gid_index_of_the_matrix_that_is_none() -> None:
    fixed = replace(ROCE, fabric=Fabric("roce", netdev="net1", gid_index=1))
    told = looked(job(fixed, fixed, env=RC), node(), node())
    assert "GID index 1 of the matrix is no IPv4 RoCE v2 GID; 3 of mlx5_0 is" in told[0].why
    good = replace(ROCE, fabric=Fabric("roce", netdev="net1", gid_index=3))
    assert looked(job(good, good, env=RC), node(), node()) == ()


def test_an_interface_that_only_tcp_is_to_take_does_not_narrow_the_gids() -> None:
    chosen = replace(ROCE, fabric=Fabric("roce", netdev="eth0", gid_index=3, guessed=True))
    assert looked(job(chosen, chosen, env=RC), node(), node()) == ()


def test_an_unknown_gid_table_gives_no_concern() -> None:
    bad = environment({**NODE, "rdma.roce": NOT_TOLD, "rdma.mlx5_0:1.gids": None})
    assert looked(job(ROCE, ROCE, env=RC), bad, bad) == ()


def test_an_interface_that_is_not_there() -> None:
    told = looked(job(CPU), environment(nics=("ens5", "ens6")))
    assert [(one.kind, one.why) for one in told] == [
        (Kind.TRANSPORT_UNAVAILABLE, "its interface eth0 is not there, or not up (up are: ens5, ens6)")
    ]
    local = replace(CPU, fabric=Fabric(netdev="lo"))
    assert looked(job(local), environment(nics=("ens5",))) == ()


def test_a_provider_that_libfabric_lacks() -> None:
    facts = environment({"libfabric.providers": ("tcp", "ofi_rxm"), "cxi": ("cxi0",)})
    cxi = job(LUMI, LUMI, family="ofi", transports=("ofi/cxi",))
    told = looked(cxi, facts, facts)
    assert [one.kind for one in told] == [Kind.TRANSPORT_UNAVAILABLE] * 2
    assert told[0].why == "libfabric has no provider cxi (it has: tcp, ofi_rxm)"
    assert looked(job(LUMI, LUMI, family="ofi", transports=("ofi/tcp",)), facts, facts) == ()


def test_slingshot_needs_its_device_and_rccl_its_plugin() -> None:
    facts = environment({"libfabric.providers": ("cxi",), "cxi": None, "rccl": "2.20.5", "rccl.plugins": None})
    assert concerns(job(LUMI, LUMI, family="ofi", transports=("ofi/cxi",)), facts)[0][0] is Kind.TRANSPORT_UNAVAILABLE
    told = concerns(job(LUMI, LUMI, family="nccl", transports=("nccl/*",)), facts, facts)
    assert told == [(Kind.SLOW, f"node {index} (lumi-g)", False) for index in range(2)]


def test_a_bridge_that_open_mpi_may_take() -> None:
    facts = environment(nics=("docker0", "eth0"))
    told = looked(job(CPU, CPU, family="ob1", transports=("ob1/tcp",)), facts, environment(nics=("eth0",)))
    assert [(one.kind, one.node, one.certain) for one in told] == [(Kind.HANG, "node 0 (cpu)", False)]
    pinned = job(CPU, CPU, family="ob1", transports=("ob1/tcp",), mca={"btl_tcp_if_include": "eth0"})
    each = job(CPU, CPU, family="ob1", transports=("ob1/tcp",), env={"OMPI_MCA_btl_tcp_if_include": "eth0"})
    assert looked(pinned, facts, facts) == looked(each, facts, facts) == ()


def test_mtus_that_differ() -> None:
    plain, jumbo = (environment({"nics": ("eth0",), "nics.eth0.mtu": mtu}) for mtu in ("1500", "9001"))
    assert concerns(job(CPU, CPU), plain, jumbo) == [(Kind.NETWORK_FAILURE, "node 1 (cpu)", False)]
    assert looked(job(CPU, CPU), plain, plain) == ()
    assert looked(job(CPU, CPU), plain, environment({"nics": ("eth0",), "nics.eth0.mtu": NOT_TOLD})) == ()


def test_infiniband_needs_no_gid_of_roce() -> None:
    ib = replace(ROCE, fabric=Fabric("infiniband"), accelerator=Accelerator())
    facts = environment({**NODE, "rdma.roce": Fact(FactState.ABSENT, None, "no port is Ethernet"), "memlock": MANY_MB})
    assert looked(job(ib, ib, env=RC), facts, facts) == ()
