"""Facts and the output of sinfo as what a first matrix is made of."""

from __future__ import annotations

import pytest

from pytest_hetgpu.cli.init.found import FoundGpus, Partition, gpus_of, partitions_of, transports_of
from pytest_hetgpu.extensions.stacks.pytorch import PyTorch
from pytest_hetgpu.model.facts import Environment, absent, found

OPEN_MPI = {
    "openmpi.pml": found(("cm", "ob1", "ucx")),
    "openmpi.btl": found(("self", "tcp")),
    "openmpi.mtl": found(("ofi",)),
    "libfabric.providers": found(("tcp", "shm")),
}


def test_an_mpi_has_the_transports_of_its_components() -> None:
    assert transports_of("Open MPI", Environment(OPEN_MPI)) == ("auto", "shm", "ob1-tcp", "ucx-tcp", "ofi-tcp")
    without = Environment({**OPEN_MPI, "openmpi.pml": found(("ob1",)), "libfabric.providers": absent("none")})
    assert transports_of("Open MPI", without) == ("auto", "shm", "ob1-tcp")
    device = {"mpich.device": found("ch4:ucx ofi"), "libfabric.providers": found(("sockets",))}
    assert transports_of("MPICH", Environment(device)) == ("auto", "shm", "ucx-tcp")
    # Alone, the device ucx is built without shared memory of its own, unless the site asked for it.
    debian = {"mpich.device": found("ch4:ucx"), "mpich.configure": found("--prefix=/usr --with-device=ch4:ucx")}
    assert transports_of("MPICH", Environment(debian)) == ("auto", "ucx-tcp")
    asked = {**debian, "mpich.configure": found("--with-device=ch4:ucx --with-ch4-shmmods=posix")}
    assert transports_of("MPICH", Environment(asked)) == ("auto", "shm", "ucx-tcp")
    assert transports_of("MPICH", Environment()) == ("auto", "shm")


def test_pytorch_by_itself_has_no_mpi() -> None:
    assert transports_of(PyTorch.vendor, Environment(OPEN_MPI)) == ()


@pytest.mark.parametrize(
    ("facts", "gpus"),
    [
        ({"cuda.devices": found(("0: T4", "1: T4")), "cuda.arch": found(("sm_75",))}, FoundGpus("cuda", "sm_75", 2)),
        ({"rocm.devices": found("gfx1011")}, FoundGpus("rocm", "", 1)),
        ({"rocm.devices": found(("a", "b")), "rocm.arch": found(("gfx90a", "gfx1011"))}, FoundGpus("rocm", "", 2)),
        ({"cuda.devices": absent("none")}, None),
    ],
)
def test_gpus(facts: dict[str, object], gpus: FoundGpus | None) -> None:
    assert gpus_of(Environment(facts)) == gpus  # type: ignore[arg-type]


def test_partitions_that_take_jobs() -> None:
    lines = ["cuda*|up|4|gpu:h200:2", "cuda*|up|1|(null)", "rocm|up|2|gpu:mi250x:8(S:0-1)", "old|down|9|", "|up|1|"]
    assert partitions_of([*lines, "evil name|up|1|", "x" * 99 + "|up|1|"]) == (
        Partition("cuda", 5, "gpu:h200:2"),
        Partition("rocm", 2, "gpu:mi250x:8(S:0-1)"),
    )
