"""Cells of torch.distributed: program, backend and rendezvous."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.job import Job, Stack
from pytest_hetgpu.model.records import MessagePoint
from tests.document_blocks import blocks
from tests.planning.plan_cases import SITE, Plans, plans

__all__ = ["plans"]

TORCH = Stack("openmpi-5-torch", "Open MPI", "5.0.11", "/t", "/t/bin/mpirun", "/t/bin/python", torch=True)
PLAIN = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
WITH_TORCH = replace(SITE, stacks={"openmpi-5-torch": TORCH, "openmpi-5": PLAIN}, programs="/p")
TEXT = """
name: demo
hardware:
  cpu: {runtime: local, mpi: {stack: openmpi-5-torch}}
  gpu: {runtime: local, platform: cuda, mpi: {stack: openmpi-5-torch}}
  plain: {runtime: local, mpi: {stack: openmpi-5}}
axes:
  placement: {two: [cpu, cpu], gpus: [gpu, gpu], bare: [plain, plain]}
  transport: {gloo: {}, nccl: {}, ob1: {}}
  workload:
    allreduce: {sizes: [8, 64], iterations: 3}
    both: {kind: allreduce, sizes: 8, in_place: both}
    guarded: {kind: send_recv, sizes: 8, memory: guarded}
    device: {kind: send_recv, sizes: 8, memory: device}
    by-mpi: {kind: allreduce, sizes: 8, backend: mpi}
    barrier: {iterations: 2}
    fault: {}
    guarded_send: {}
    ddp_train: {hidden: 16}
    pi_trapezoid: {}
    own: {kind: command, argv: [./train], mpi: false, check: false}
    own-mpi: {kind: command, argv: [./train], mpi: true, check: false}
    own-any: {kind: command, argv: [./train], check: false}
  launcher: {mpirun: {launcher: mpirun}, torchrun: {launcher: torchrun}}
"""


def job(plans: Plans, name: str) -> Job:
    return plans(name, TEXT, site=WITH_TORCH)


def test_a_transport_of_torch_runs_the_same_workload_by_torch(plans: Plans) -> None:
    found = job(plans, "two-gloo-allreduce-mpirun")
    port = found.command.argv[found.command.argv.index("env") + 3].partition("=")[2]
    assert 20_000 <= int(port) < 30_000
    assert found.command.argv == (
        *("/t/bin/mpirun", "-np", "2", "env", "GLOO_SOCKET_IFNAME=lo", "MASTER_ADDR=127.0.0.1"),
        *(f"MASTER_PORT={port}", "OMP_NUM_THREADS=1", "/t/bin/python", "/p/torch_sweep.py"),
        *("--operation", "allreduce", "--backend", "gloo", "--sizes", "8,64", "--dtypes", "float32"),
        *("--iterations", "3", "--warmup", "5", "--repeats", "5"),
    )
    assert found.demand.backend == "gloo"
    assert found.demand.points == (MessagePoint(8, "float32", "in"), MessagePoint(64, "float32", "in"))
    assert found.demand.facts["backend"] == "gloo"


def test_torchrun_tells_ranks_itself_and_ranks_tell_their_node(plans: Plans) -> None:
    argv = job(plans, "two-gloo-barrier-torchrun").command.argv
    assert argv[:2] == ("/t/bin/python", "/p/torchruns.py")
    assert [token for token in argv if token.startswith("HETGPU_NODE")] == ["HETGPU_NODE=0", "HETGPU_NODE=1"]
    assert not [token for token in argv if token.startswith("MASTER_")]


def test_the_port_of_a_cell_is_its_own_and_stable(plans: Plans) -> None:
    def port(name: str) -> str:
        return next(token for token in job(plans, name).command.argv if token.startswith("MASTER_PORT"))

    assert port("two-gloo-allreduce-mpirun") == port("two-gloo-allreduce-mpirun")
    assert port("two-gloo-allreduce-mpirun") != port("two-gloo-barrier-mpirun")


def test_a_backend_makes_a_workload_one_of_torch_over_what_mpi_uses(plans: Plans) -> None:
    found = job(plans, "two-ob1-by-mpi-mpirun")
    assert found.demand.backend == "mpi"
    assert "--backend" in found.command.argv
    assert "mpi4py" not in found.command.argv


def test_training_takes_the_backend_of_its_transport_else_mpi(plans: Plans) -> None:
    assert job(plans, "two-gloo-ddp_train-mpirun").demand.backend == "gloo"
    found = job(plans, "two-ob1-ddp_train-mpirun")
    assert found.demand.backend == "mpi"
    # 32 features, 16 hidden units, one output, 4 bytes each.
    assert found.demand.points == (MessagePoint(4 * (33 * 16 + 17), "float32"),)


def test_nccl_moves_device_memory(plans: Plans) -> None:
    assert job(plans, "gpus-nccl-allreduce-torchrun").demand.facts["memory"] == "device"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("bare-gloo-allreduce-mpirun", "needs PyTorch, which stack openmpi-5 has not"),
        ("bare-gloo-allreduce-torchrun", "needs PyTorch, which stack openmpi-5 has not"),
        ("two-nccl-allreduce-torchrun", "needs an accelerator on every node, hardware cpu is platform cpu"),
        ("two-gloo-device-torchrun", "needs an accelerator on every node, hardware cpu is platform cpu"),
        ("two-ob1-device-mpirun", "needs an accelerator on every node, hardware cpu is platform cpu"),
        ("two-gloo-guarded-mpirun", "has guarded memory under MPI only"),
        ("two-gloo-fault-mpirun", "fault calls MPI itself, and has no form in torch.distributed (gloo)"),
        ("two-gloo-guarded_send-mpirun", "guarded_send calls MPI itself, and has no form in torch.distributed (gloo)"),
        ("two-gloo-both-mpirun", "cannot be in_place: both by torch.distributed"),
        ("two-gloo-by-mpi-mpirun", "by-mpi asks for backend mpi, but transport gloo is torch.distributed's gloo"),
        ("two-ob1-allreduce-torchrun", "torchrun starts programs of torch.distributed; this one calls MPI"),
        ("two-ob1-by-mpi-torchrun", "torchrun cannot start ranks of backend mpi"),
    ],
)
def test_what_cannot_be_is_skipped_with_its_reason(plans: Plans, cell: str, reason: str) -> None:
    with pytest.raises(NotHere) as caught:
        job(plans, cell)
    assert reason in str(caught.value)


def test_torchrun_starts_a_program_of_the_user_that_is_none_of_mpi(plans: Plans) -> None:
    argv = job(plans, "two-gloo-own-torchrun").command.argv
    assert argv[-4:] == ("/p/run_external.py", "--no-mpi", "--", "./train")
    assert {"GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1"} <= {*argv}
    with pytest.raises(NotHere, match="this one calls MPI: .* `mpi: false`"):
        job(plans, "two-gloo-own-mpi-torchrun")
    with pytest.raises(NotHere, match="this one calls MPI"):
        job(plans, "two-ob1-own-torchrun")


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_over_a_transport_of_torch_a_program_of_the_user_is_none_of_mpi(plans: Plans, launcher: str) -> None:
    named, inferred = (job(plans, f"two-gloo-{name}-{launcher}") for name in ("own", "own-any"))
    assert inferred.demand.external
    assert inferred.demand.external == named.demand.external
    assert inferred.command.argv[-1] == "./train"
    over_mpi = job(plans, "two-ob1-own-any-mpirun")
    assert over_mpi.demand.external
    assert over_mpi.demand.external.proof


def test_the_script_of_the_documents_is_planned(plans: Plans) -> None:
    (text,) = (block.text for block in blocks() if block.place.startswith("docs/reference/torch.md"))
    torch = Stack("torch", "torch", "2.13.0", "/t", "/t/bin/torchrun", "/t/bin/python", torch=True)
    found = plans("two-gloo-train", text, site=replace(SITE, stacks={"torch": torch}, programs="/p"))
    assert found.command.argv[:2] == ("/t/bin/python", "/p/torchruns.py")
    assert found.command.argv[-2:] == ("/t/bin/python", "/opt/train.py")
