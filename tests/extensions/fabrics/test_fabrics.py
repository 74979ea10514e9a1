"""Variables of each kind of fabric."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.fabrics.base import FabricKind
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.model.job import Fabric

SOCKETS = {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "8"}


def kind(name: str) -> FabricKind:
    return find("fabrics", name, FabricKind)()  # type: ignore[type-abstract]


@pytest.mark.parametrize(
    ("fabric", "environment"),
    [
        (Fabric(), {}),
        (Fabric(netdev="ens5", gbps=10), {}),
        (Fabric("roce"), SOCKETS),
        (
            Fabric("roce", "ens5f0", "mlx5_bond_0", 9),
            {
                "NCCL_IB_HCA": "mlx5_bond_0",
                "NCCL_IB_GID_INDEX": "9",
                "NCCL_SOCKET_IFNAME": "ens5f0",
                "UCX_NET_DEVICES": "mlx5_bond_0:1",
                "UCX_IB_GID_INDEX": "9",
                **SOCKETS,
            },
        ),
        # The first entry of a table of GIDs is one like any other.
        (Fabric("roce", gid_index=0), {"NCCL_IB_GID_INDEX": "0", "UCX_IB_GID_INDEX": "0", **SOCKETS}),
        (Fabric("infiniband"), {}),
        (Fabric("infiniband", hca="mlx5_1:2"), {"NCCL_IB_HCA": "mlx5_1:2", "UCX_NET_DEVICES": "mlx5_1:2"}),
        (Fabric("infiniband", "ib0", gid_index=3), {"NCCL_SOCKET_IFNAME": "ib0"}),
        (Fabric("slingshot", "hsn0"), {"NCCL_SOCKET_IFNAME": "hsn"}),
        (Fabric("efa", "ens32"), {"NCCL_SOCKET_IFNAME": "ens32"}),
        (Fabric("efa"), {}),
    ],
)
def test_what_is_known_is_named_and_what_is_not_is_left_out(fabric: Fabric, environment: dict[str, str]) -> None:
    assert kind(fabric.kind).environment(fabric) == environment


def test_kinds_that_pass_the_kernel_by() -> None:
    assert [name for name in names("fabrics") if kind(name).rdma] == ["efa", "infiniband", "roce", "slingshot"]
    assert {name: kind(name).link_layer for name in names("fabrics") if kind(name).link_layer} == {
        "infiniband": "InfiniBand",
        "roce": "Ethernet",
    }
