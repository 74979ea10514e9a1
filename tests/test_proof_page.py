"""The page on proofs of transports says what the code does: every workload, and the pins of MPI windows."""

from __future__ import annotations

import re

import pytest

from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.transports._openmpi import pinned
from pytest_hetgpu.extensions.transports.base import Transport
from pytest_hetgpu.extensions.workloads._external import ExternalWorkload
from pytest_hetgpu.extensions.workloads._training import TorchWorkload
from pytest_hetgpu.extensions.workloads.base import SweepWorkload, Workload
from pytest_hetgpu.extensions.workloads.osu import Osu, OsuSettings
from pytest_hetgpu.model.job import Stack
from tests.document_blocks import ROOT

PAGE = (ROOT / "docs" / "reference" / "proof.md").read_text(encoding="utf-8")
FOUR = Stack("openmpi-4", "Open MPI", "4.1.8", "/s", "/s/bin/mpirun", "/s/bin/python")
FIVE = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
HYDRA = Stack("mpich", "MPICH", "5.0.2", "/s", "/s/bin/mpirun", "/s/bin/python")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
PATHS = {row[0]: row for row in ROWS if len(row) == 4}
WINDOWS = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 5 and row[0].startswith("`")}
SHIPPED = {name: find("workloads", name, Workload) for name in names("workloads")}  # type: ignore[type-abstract]


def listed(path: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", PATHS[path][1])) & SHIPPED.keys()


def test_every_workload_is_on_the_page() -> None:
    assert {name for path in PATHS for name in listed(path)} == SHIPPED.keys()


def test_a_workload_is_on_the_path_that_it_takes() -> None:
    own_layer = {name for name, kind in SHIPPED.items() if issubclass(kind, ExternalWorkload) and kind.layer}
    assert listed("a library of its own") == own_layer | {"osu"}
    assert listed("PyTorch") == {name for name, kind in SHIPPED.items() if issubclass(kind, TorchWorkload)}
    assert listed("any of these") == {"command"}
    assert listed("MPI windows") == {"osu", "imb"}
    paired = {name for name, kind in SHIPPED.items() if issubclass(kind, SweepWorkload) and kind.paired}
    assert paired <= listed("messages")
    assert not paired & listed("collectives")


@pytest.mark.parametrize("program", re.findall(r"`(osu_\w+_)\*`", PATHS["MPI windows"][1]))
def test_programs_of_osu_that_use_windows(program: str) -> None:
    assert Osu(OsuSettings.model_validate({"program": f"{program}latency", "check": False})).one_sided


def test_programs_of_osu_over_nccl() -> None:
    work = Osu(OsuSettings.model_validate({"program": "osu_xccl_allreduce"}))
    assert work.external(2).layer == "nccl"
    assert work.unsuitable_transport("nccl") is None
    assert work.unsuitable_transport("ucx") == "runs over nccl alone, whatever MPI does; the cell's transport is ucx"


def test_components_of_collectives_that_are_left_out() -> None:
    assert f"`--mca coll {pinned(FIVE, {'pml': 'ob1'}).mca['coll']}`" in PAGE
    assert "coll" not in pinned(FIVE, {}).mca


def test_pins_of_windows() -> None:
    families = {name: find("transports", name, Transport) for name in names("transports")}  # type: ignore[type-abstract]
    of_mpi = {name: kind for name, kind in families.items() if not kind.backend and not kind.layered}
    assert of_mpi.keys() == WINDOWS.keys()
    for name, kind in of_mpi.items():
        transport = kind(kind.Settings())
        assert WINDOWS[name] == [*(pins(transport, stack) for stack in (FOUR, FIVE, HYDRA)), carriers(transport)], name


def pins(transport: Transport, stack: Stack) -> str:
    if transport.unsuitable(stack):
        return "has no such transport"
    found = transport.one_sided(stack, benchmark=True)
    assert found is not None
    rendering, asked = found
    given = [f"`{name} {value}`" for name, value in rendering.mca.items() if name != "osc_base_verbose"]
    given += [f"`{name}={value}`" for name, value in rendering.env.items()]
    assert asked.logged == ("osc_base_verbose" in rendering.mca or (not given and name_of(transport) == "shm"))
    return ", ".join([*given, *(["logged"] if asked.logged else [])]) or "-"


def carriers(transport: Transport) -> str:
    texts = []
    for stack in (FIVE, HYDRA):
        found = None if transport.unsuitable(stack) else transport.one_sided(stack, benchmark=True)
        texts.append(", ".join(f"`{one}`" for one in found[1].components) if found else "-")
    return "; ".join(texts)


def name_of(transport: Transport) -> str:
    return type(transport).__module__.rpartition(".")[2]
