"""Pairs to measure, and the number of parallel measurements."""

from __future__ import annotations

from itertools import chain

import pytest

from pytest_hetgpu.cluster.bandwidth.pairs import pairs, rounds
from tests.cluster.bandwidth.bandwidth_cases import job, node


def indices(*nodes: str) -> list[tuple[int, int]]:
    """Return the indices of the measured pairs of nodes on these hosts."""
    made = job(*(node(index, host) for index, host in enumerate(nodes)))
    return [(one.index, other.index) for one, other in pairs(made)]


def test_two_hosts_are_one_pair() -> None:
    assert indices("a", "b") == [(0, 1)]


def test_more_are_the_ring() -> None:
    assert indices("a", "b", "c") == [(0, 1), (1, 2), (2, 0)]
    assert indices("a", "b", "c", "d") == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_nodes_of_one_host_have_nothing_between_them() -> None:
    assert indices("a", "a") == []
    assert indices("a") == []
    assert indices("a", "a", "b") == [(1, 2)]


def test_containers_with_networks_of_their_own_are_equal_pairs_of_one_host() -> None:
    made = job(*(node(index, "localhost", network="user") for index in range(6)))
    assert [(one.index, other.index) for one, other in pairs(made)] == [(0, 1)]
    assert pairs(job(node(0, "localhost", network="host"), node(1, "localhost", network="host"))) == ()


@pytest.mark.parametrize("count", [2, 3, 5, 8, 64, 513])
def test_many_hosts_cost_three_rounds_and_no_host_is_in_two_pairs_at_once(count: int) -> None:
    found = pairs(job(*(node(index, f"h{index}") for index in range(count))))
    made = rounds(found)
    assert len(found) == (count if count > 2 else 1)
    assert len(made) <= 3
    assert sorted(one.index for one, _ in chain(*made)) == sorted(one.index for one, _ in found)
    for together in made:
        hosts = [member.host for two in together for member in two]
        assert len(set(hosts)) == len(hosts)
