"""srun's components, token by token, and when it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.launchers.base import Launcher, LaunchRequest
from pytest_hetgpu.extensions.launchers.srun import Srun
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.runtimes.batch.request import LUMI_G, Batch
from pytest_hetgpu.model.job import RankContext, Stack

OPEN_MPI = Stack("openmpi-5", "Open MPI", "5", "/s", "/s/bin/mpirun", "/s/bin/python3")
MPICH = Stack("mpich", "MPICH", "4", "/s", "/s/bin/mpiexec", "/s/bin/python3")
PROGRAM = ("/s/bin/python3", "-m", "mpi4py", "/tmp/hetgpu-1/programs/allreduce.py")
BATCH = Batch(partition="cuda")
MASKS = "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"


def node(ranks: int = 1, host: str = "node0", batch: Batch | None = BATCH, **env: str) -> RankContext:
    return RankContext(ranks, host, PROGRAM, env, batch)


def argv(*contexts: RankContext, stack: Stack = OPEN_MPI, mca: dict[str, str] | None = None) -> tuple[str, ...]:
    command = Srun().command(LaunchRequest(stack, contexts, mca or {}, programs="/tmp/hetgpu-1/programs"))
    assert command.env == {}
    return command.argv


def test_it_is_found_by_its_name() -> None:
    assert find("launchers", "srun", Launcher) is Srun  # type: ignore[type-abstract]


def test_nodes_of_one_kind_are_one_component() -> None:
    assert argv(node(2, A="x y"), node(2, "node1", A="x y"), mca={"pml": "ob1"}) == (
        *(
            "srun",
            "--mpi=pmix",
            "--kill-on-bad-exit=1",
            "--input=none",
            "--nodes=2",
            "--ntasks=4",
            "--ntasks-per-node=2",
        ),
        *("env", "A=x y", "OMPI_MCA_pml=ob1", *PROGRAM),
    )


def test_a_file_of_variables_is_read_in_the_container() -> None:
    batch = replace(BATCH, image="/i.sif", container="apptainer")
    read = ("/s/bin/python3", "-I", "-S", "/tmp/hetgpu-1/programs/with_variables.py")
    context = replace(node(batch=batch, A="hidden"), reader=read, file="/tmp/hetgpu-1/variables-0")
    found = argv(context, mca={"pml": "ob1"})
    at = found.index("apptainer")
    assert found[at : at + 2] == ("apptainer", "exec")
    end = ("/i.sif", "env", "OMPI_MCA_pml=ob1", *read, "/tmp/hetgpu-1/variables-0", *PROGRAM)
    assert found[-len(end) :] == end


def test_mpich_meets_by_pmi2_and_a_site_may_say_otherwise() -> None:
    assert argv(node(), stack=MPICH)[1] == "--mpi=pmi2"
    assert argv(node(batch=replace(BATCH, mpi="cray_shasta")), stack=MPICH)[1] == "--mpi=cray_shasta"
    assert Srun().unsuitable(MPICH, ["pml"]) == "of MPICH takes no MCA parameters; this cell sets pml"
    assert Srun().unsuitable(OPEN_MPI, ["pml"]) is None


def test_each_kind_of_a_heterogeneous_job_has_its_own_settings() -> None:
    found = argv(
        node(batch=replace(BATCH, group=0), V="1"),
        node(2, "node1", batch=Batch(partition="rocm", gpus="2", group=1), V="2"),
    )
    assert found == (
        *("srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--input=none", "--het-group=0", "--nodes=1", "--ntasks=1"),
        *("--ntasks-per-node=1", "env", "V=1", *PROGRAM, ":"),
        *(
            "--mpi=pmix",
            "--kill-on-bad-exit=1",
            "--input=none",
            "--het-group=1",
            "--nodes=1",
            "--ntasks=2",
            "--ntasks-per-node=2",
        ),
        *("--gpus-per-node=2", "env", "V=2", *PROGRAM),
    )


def test_ranks_of_lumi_g_stand_beside_their_gpus() -> None:
    batch = replace(BATCH, binding=LUMI_G)
    assert f"--cpu-bind=mask_cpu:{MASKS}" in argv(node(8, batch=batch))
    assert "--cpu-bind=mask_cpu:0xfe000000000000" in argv(node(1, batch=batch))
    with pytest.raises(NotHere, match="names the CPUs of 8 ranks a node, this cell has 9"):
        argv(node(9, batch=batch))


def test_a_word_of_sruns_binds_too() -> None:
    found = argv(node(batch=replace(BATCH, bind="cores", cpus_per_rank=7)))
    assert found[7:9] == ("--cpus-per-task=7", "--cpu-bind=cores")


@pytest.mark.parametrize("program", ["apptainer", "singularity"])
def test_images_are_run_with_their_binds(program: str) -> None:
    batch = replace(BATCH, image="/i/rocm.sif", platform="rocm", binds=("/opt/cray", "/a:/b:ro"), container=program)
    found = argv(node(batch=batch, A="1"))
    folder = "/opt/cray,/a:/b:ro,/tmp/hetgpu-1"
    assert found[7:] == (program, "exec", "--rocm", "--bind", folder, "/i/rocm.sif", "env", "A=1", *PROGRAM)


def test_images_are_given_to_pyxis() -> None:
    batch = replace(BATCH, image="nvcr.io#nvidia/pytorch:25.01", container="pyxis", binds=("/opt/amazon",))
    mounts = "--container-mounts=/opt/amazon:/opt/amazon,/tmp/hetgpu-1:/tmp/hetgpu-1"
    assert argv(node(batch=batch))[7:9] == ("--container-image=nvcr.io#nvidia/pytorch:25.01", mounts)


def test_nodes_without_an_allocation_and_unlike_ones_are_refused() -> None:
    with pytest.raises(NotHere, match="on nodes of runtime slurm alone"):
        argv(node(batch=None))
    with pytest.raises(NotHere, match=r"node0 and node1 differ in HCA: give them hardware of two names"):
        argv(node(HCA="mlx5_0"), node(1, "node1", HCA="mlx5_1"))
