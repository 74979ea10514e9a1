"""Nominal rates of adapters."""

from __future__ import annotations

import pytest

from pytest_hetgpu.cluster.bandwidth.line_rates import line_rate
from pytest_hetgpu.model.facts import Environment, absent, found
from pytest_hetgpu.model.job import Fabric
from tests.cluster.bandwidth.bandwidth_cases import node

FACTS = {
    "rdma.mlx5_0:1.rate": "100 Gb/sec (4X EDR)",
    "rdma.mlx5_0:2.rate": "200 Gb/sec (4X HDR)",
    "rdma.mlx4_0:1.rate": "40 Gb/sec (4X QDR)",
    "rdma.mlx5_1:1.rate": "100 Gb/sec (2X HDR)",
    "rdma.efa_0:1.rate": "2.5 Gb/sec",
    "nics.ens5.speed": "25000",
    "nics.ens5.driver": "mlx5_core",
    "nics.hsn0.speed": "200000",
    "nics.hsn0.driver": "cxi_ss1",
    "nics.eth0.speed": "10000",
}
SEEN = Environment({**{name: found(text) for name, text in FACTS.items()}, "nics.eth0.driver": absent("veth")})


@pytest.mark.parametrize(
    ("fabric", "gbps", "source"),
    [
        (Fabric("roce", hca="mlx5_0"), 100, "rate of mlx5_0:1"),
        (Fabric("roce", hca="mlx5_0:2", gbps=1), 200, "rate of mlx5_0:2"),
        (Fabric("infiniband", hca="mlx5_0,mlx5_1"), 200, "rate of mlx5_0:1 and rate of mlx5_1:1"),
        # Eight bits of ten are data on the older InfiniBand; 40 Gbit/s of Ethernet are 40.
        (Fabric("infiniband", hca="mlx4_0"), 32, "rate of mlx4_0:1"),
        (Fabric("roce", hca="mlx4_0"), 40, "rate of mlx4_0:1"),
        (Fabric("roce", hca="gone", gbps=50), 50, "gbps of the matrix"),
        (Fabric("slingshot", netdev="hsn0"), 200, "speed of hsn0"),
        (Fabric("tcp", netdev="ens5"), 25, "speed of ens5"),
        (Fabric("slingshot", netdev="hsn0", gbps=100), 100, "gbps of the matrix"),
        (Fabric("efa", hca="efa_0", gbps=400), 2.5, "rate of efa_0:1"),
        (Fabric("tcp", netdev="ens5", gbps=10), 25, "speed of ens5"),
        (Fabric("tcp", netdev="eth0", gbps=10), 10, "gbps of the matrix"),
    ],
)
def test_the_rate_of_an_adapter(fabric: Fabric, gbps: float, source: str) -> None:
    one = line_rate(node(3, fabric=fabric), SEEN)
    assert one
    assert (one.node, one.gbps, one.source) == ("node3", gbps, source)


@pytest.mark.parametrize("fabric", [Fabric(), Fabric(netdev="eth0"), Fabric(netdev="gone"), Fabric("roce")])
def test_none_is_made_up(fabric: Fabric) -> None:
    assert line_rate(node(0, fabric=fabric), SEEN) is None
