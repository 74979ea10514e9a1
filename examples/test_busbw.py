"""A scenario module to copy: looks at the nodes, runs each cell, and wants a bandwidth.

pytest --hetgpu-matrix matrices/smoke.yaml examples/test_busbw.py
"""

from __future__ import annotations

import pytest

from pytest_hetgpu import Cluster, Run, Scenario

SHARE = 0.25  # of the slowest wire, where the matrix says how fast that is (`fabric: {gbps: 10}`)
LEAST = 0.001  # GB/s elsewhere
SHARED_MEMORY = 16 << 20  # bytes


@pytest.fixture
def fit(cluster: Cluster) -> Cluster:
    """Check the nodes of the cell: a mistake here is an error, not a failure."""
    for member in cluster.nodes:
        free = member.host.check_output("df --output=avail -B1 /dev/shm | tail -n 1")
        assert int(free) >= SHARED_MEMORY, f"{member.node.host} has {free} bytes of shared memory left"
        netdev = member.node.hardware.fabric.netdev
        if netdev:
            assert member.host.file(f"/sys/class/net/{netdev}").exists, f"{member.node.host} has no {netdev}"
    return cluster


def test_busbw(scenario: Scenario, fit: Cluster, run: Run) -> None:
    """Every cell that moves data is fast enough at its largest size."""
    outcome = run()  # a cell that fails, or fails as the matrix expects, ends here
    found = [one for one in outcome.measurements if one.metric == "busbw"]
    if not found:
        return  # a barrier has a latency only
    largest = max(found, key=lambda one: one.point.size)
    wires = [member.node.hardware.fabric.gbps for member in fit.nodes]
    known = [gbps for gbps in wires if gbps]
    wanted = SHARE * min(known) / 8 if known else LEAST
    assert largest.value >= wanted, f"{scenario.label}: {largest.name} is {largest.value:.3f}, wanted {wanted:.3f} GB/s"
