"""Slurm settings of jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.extensions.runtimes.batch.request import LUMI_G, Batch, components, cpus, groups, mask, one_step

CUDA = Batch(partition="cuda", account="p1", gres="gpu:h200:2", time="10", group=0)
ROCM = Batch(partition="rocm", qos="fast", constraint="a&b", reservation="r", gpus="8", exclusive=False, group=1)


def test_neighbours_of_one_kind_are_one_component() -> None:
    assert groups([]) == []
    assert groups(["a", "a", "b", "a"]) == [0, 0, 1, 2]


def test_salloc_is_asked_for_a_component_of_each_kind() -> None:
    assert components("n", [CUDA, replace(CUDA, relative=1), ROCM], "a=b") == (
        *("--job-name=n", "--comment=a=b", "--nodes=2", "--partition=cuda", "--account=p1", "--gres=gpu:h200:2"),
        *("--time=10", "--exclusive", ":", "--job-name=n", "--comment=a=b", "--nodes=1", "--partition=rocm"),
        *("--qos=fast", "--gpus-per-node=8", "--constraint=a&b", "--reservation=r", "--time=30", "--ntasks-per-node=1"),
    )


def test_of_a_shared_node_as_much_is_asked_for_as_its_ranks_need() -> None:
    shared = Batch(exclusive=False, cpus_per_rank=4, ranks=2)
    words = ("--job-name=n", "--nodes=2", "--time=30", "--ntasks-per-node=2", "--cpus-per-task=4")
    assert components("n", [replace(shared, ranks=0), shared]) == words


def test_a_node_is_named_by_its_place() -> None:
    assert "--relative=3" in one_step(Batch(relative=3))
    assert not any("het-group" in word for word in one_step(Batch()))
    assert "--het-group=1" in one_step(ROCM)


def test_lists_of_cpus_are_masks() -> None:
    assert cpus("1-3,7") == {1, 2, 3, 7}
    assert [mask(one) for one in LUMI_G[:2]] == ["0xfe000000000000", "0xfe00000000000000"]
    with pytest.raises(ValueError, match="x"):
        cpus("x")
