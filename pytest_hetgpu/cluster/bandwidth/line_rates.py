"""Nominal rates of adapters, by sysfs or the matrix. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_hetgpu.cluster.bandwidth.pairs import name_of
from pytest_hetgpu.extensions.fabrics.base import FabricKind
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.model.bandwidth import LineRate
from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.job import Fabric, Node

# `100 Gb/sec (4X EDR)`: drivers/infiniband/core/sysfs.c, rate_show.
_RATE = re.compile(r"([\d.]+) Gb/sec(?: \((?:\d+X )?(\w+)\))?")
# These rates include the line code 8b/10b, a fifth (InfiniBand Architecture Specification, volume 2). Names of later
# ones are data rates. Over Ethernet the rate is Ethernet's own speed.
_CODED = frozenset(("SDR", "DDR", "QDR"))


def line_rate(node: Node, seen: Environment) -> LineRate | None:
    """Return the rate of a node's adapter in its fabric, None if it is not known.

    On fabrics that bypass the kernel: the HCA's, else the matrix's, else the interface's. On other fabrics: the
    interface's, else the matrix's.
    """
    fabric = node.hardware.fabric
    kind = find("fabrics", fabric.kind, FabricKind)  # type: ignore[type-abstract]
    by_matrix = [(fabric.gbps, "gbps of the matrix")] if fabric.gbps else []
    if kind.rdma:
        found = [*_hcas(fabric, kind.link_layer, seen)] or by_matrix or [*_interface(fabric, seen)]
    else:
        found = [*_interface(fabric, seen)] or by_matrix
    if not found:
        return None
    return LineRate(name_of(node), sum(gbps for gbps, _ in found), " and ".join(source for _, source in found))


def _hcas(fabric: Fabric, layer: str, seen: Environment) -> Iterator[tuple[float, str]]:
    """Yield the rate of each HCA of the fabric (`mlx5_0`, `mlx5_0:2`, several with commas)."""
    for name in filter(None, (fabric.hca or "").split(",")):
        hca, _, port = name.partition(":")
        device = f"{hca}:{port or 1}"
        match = _RATE.fullmatch(seen.text(f"rdma.{device}.rate") or "")
        if match:
            coded = layer == "InfiniBand" and match[2] in _CODED
            yield float(match[1]) * (0.8 if coded else 1.0), f"rate of {device}"


def _interface(fabric: Fabric, seen: Environment) -> Iterator[tuple[float, str]]:
    """Yield the speed of the interface.

    Interfaces without a device behind them (in containers) report a meaningless speed.
    """
    name = f"nics.{fabric.netdev}"
    speed = seen.text(f"{name}.speed")
    if speed and speed.isdecimal() and seen.text(f"{name}.driver"):
        yield int(speed) / 1000, f"speed of {fabric.netdev}"
