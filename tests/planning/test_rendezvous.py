"""The node at which ranks of torch.distributed meet."""

from __future__ import annotations

import pytest

from pytest_hetgpu.errors import MatrixError, NotHere
from pytest_hetgpu.model.job import Job
from tests.planning.plan_cases import Plans, Reads, plans
from tests.planning.test_plan_torch import WITH_TORCH

__all__ = ["plans"]

TEXT = """
name: demo
hardware:
  amd: {runtime: local, mpi: {stack: openmpi-5-torch}}
  nvidia: {runtime: local, mpi: {stack: openmpi-5-torch}}
axes:
  placement:
    pair: [amd, nvidia]
    nvidia-first: {nodes: [amd, nvidia], master: nvidia}
    amd-first: {nodes: [amd, nvidia], master: amd}
  transport: {gloo: {}, ob1: {}}
  workload: {ddp_train: {}, by-mpi: {kind: ddp_train, backend: mpi}}
  launcher: {mpirun: {launcher: mpirun}, torchrun: {launcher: torchrun}}
"""


def job(plans: Plans, name: str) -> Job:
    return plans(name, TEXT, site=WITH_TORCH)


def hosts(job: Job) -> list[bool]:
    """Whether each agent of torchrun serves the store."""
    return [token.endswith("true") for token in job.command.argv if token.startswith("is_host")]


def test_agents_of_torchrun_meet_at_the_master(plans: Plans) -> None:
    assert hosts(job(plans, "pair-gloo-ddp_train-torchrun")) == [True, False]
    assert hosts(job(plans, "amd-first-gloo-ddp_train-torchrun")) == [True, False]
    assert hosts(job(plans, "nvidia-first-gloo-ddp_train-torchrun")) == [False, True]


def test_ranks_of_mpi_know_each_other_whatever_the_master(plans: Plans) -> None:
    argv = job(plans, "nvidia-first-ob1-by-mpi-mpirun").command.argv
    assert any(token.startswith("MASTER_ADDR=") for token in argv)


def test_other_backends_meet_at_rank_0(plans: Plans) -> None:
    assert job(plans, "amd-first-gloo-ddp_train-mpirun")
    with pytest.raises(NotHere) as caught:
        job(plans, "nvidia-first-gloo-ddp_train-mpirun")
    assert str(caught.value) == (
        "master is node 1, but ranks of gloo meet at rank 0: make it the first node, or use launcher torchrun or "
        "backend mpi"
    )


def test_a_master_that_is_no_node_is_an_error(reads: Reads) -> None:
    with pytest.raises(MatrixError) as caught:
        reads(TEXT.replace("master: nvidia", "master: nvida"))
    (error,) = caught.value.errors
    assert error == (
        "m.yaml:9: axes.placement.nvidia-first.master: no node is 'nvida' (known: amd, nvidia; did you mean 'nvidia'?)"
    )
