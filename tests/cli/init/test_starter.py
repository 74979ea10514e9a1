"""The first matrix: whatever was found, it can be read, planned and run."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.cli.init.command import report
from pytest_hetgpu.cli.init.found import FoundGpus, FoundMachine, FoundStack, Partition
from pytest_hetgpu.cli.init.starter import INVENTORY, MATRIX, run_command, starter_files
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs

OMPI = FoundStack("openmpi-5", "Open MPI 5.0.11", "/opt/ompi", ("auto", "shm", "ob1-tcp", "ucx-tcp"))
MPICH = FoundStack("mpich", "MPICH 5.0.2", "/opt/mpich", ("auto", "shm", "ofi-tcp"))
TORCH = FoundStack("torch", "PyTorch 2.13", "/opt/torch", (), torch=True)


def cells(found: FoundMachine, folder: Path) -> list[Scenario]:
    for name, text in starter_files(found).items():
        (folder / name).write_text(text)
    inventory = folder / INVENTORY if (folder / INVENTORY).exists() else None
    suite = MatrixSet.load([folder / MATRIX], folder, timeout=60, environ={}, inputs=RunInputs(inventory))
    for scenario in suite.scenarios:
        if not scenario.excluded:
            suite.job(scenario, even_if_absent=True)
    return list(suite.scenarios)


def test_each_mpi_has_the_transports_that_it_has(tmp_path: Path) -> None:
    found = cells(FoundMachine("here", (OMPI, MPICH)), tmp_path)
    ran = {tuple(cell.values[:2]) for cell in found if not cell.excluded}
    assert ran == {
        *(("openmpi-5", name) for name in OMPI.transports),
        *(("mpich", name) for name in MPICH.transports),
    }
    assert not (tmp_path / INVENTORY).exists()


def test_an_mpi_whose_mpi4py_is_of_another_one_is_left_out_with_the_cure(tmp_path: Path) -> None:
    foreign = replace(MPICH, transports=(), unusable="its mpi4py is linked with Open MPI; build one")
    found = FoundMachine("here", (foreign, OMPI))
    assert {cell.values[0] for cell in cells(found, tmp_path)} == {"openmpi-5"}
    text = (tmp_path / MATRIX).read_text()
    assert "  # mpich is left out: its mpi4py is linked with Open MPI; build one\n" in text
    lines = list(report(found))
    assert lines[:2] == [
        "MPI       mpich: MPICH 5.0.2 in /opt/mpich, left out",
        "          its mpi4py is linked with Open MPI; build one",
    ]


def test_without_an_mpi_the_usual_one_is_asked_for(tmp_path: Path) -> None:
    assert {cell.values[0] for cell in cells(FoundMachine("here"), tmp_path)} == {"openmpi-5"}
    assert "not here yet" in (tmp_path / MATRIX).read_text()


@pytest.mark.parametrize(
    ("stacks", "gpus", "partitions", "hosts", "program"),
    list(
        itertools.product(
            [(OMPI,), (OMPI, TORCH), ()],
            [None, FoundGpus("rocm", "gfx90a", 8), FoundGpus("cuda", "", 1)],
            [(), (Partition("gpu.long", 9, "gpu:h200:2(S:0)"), Partition("cpu", 1))],
            [(), ("gpu1",), ("gpu1", "10.0.0.2", "[fe80::1]")],
            [(), ("{python}", "/tmp/a b.py", "{x}", "${HOME}", "#", "'\"\n")],
        )
    ),
)
def test_whatever_is_found_can_be_planned(
    tmp_path: Path,
    stacks: tuple[FoundStack, ...],
    gpus: FoundGpus | None,
    partitions: tuple[Partition, ...],
    hosts: tuple[str, ...],
    program: tuple[str, ...],
) -> None:
    found = FoundMachine("here", stacks, gpus, partitions, "docker 20", program, hosts)
    placements = {cell.values[0] for cell in cells(found, tmp_path)}
    assert ("gpus" in placements) is bool(gpus and TORCH in stacks)
    assert ("hosts" in placements) is bool(hosts)
    assert {f"slurm-{one.name}" for one in partitions} <= placements
    assert (tmp_path / INVENTORY).exists() is bool(hosts or partitions)
    assert (INVENTORY in run_command(found)) is bool(hosts or partitions)


def test_names_of_this_machine_are_only_comments(tmp_path: Path) -> None:
    evil = "x\nhardware: {a: {}}\n#"
    stack = FoundStack("openmpi-5", f"Open MPI 5{evil}", f"/opt{evil}", ("auto", "shm"))
    assert len(cells(FoundMachine(evil, (stack,), engine=f"docker{evil}"), tmp_path)) == 4
