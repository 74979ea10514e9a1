"""Jobs whose programs may use MPI windows: their pins, and whether these hold after the settings of the matrix."""

from __future__ import annotations

import pytest

from pytest_hetgpu.model.transport_classes import OneSided
from tests.planning.plan_cases import ALL, Plans, plans

__all__ = ["plans"]

TEXT = """\
name: demo
hardware:
  five:
  four: {mpi: {stack: openmpi-4}}
  hydra: {mpi: {stack: mpich}}
axes:
  placement: {five: [five, five], four: [four, four], hydra: [hydra, hydra]}
  transport: {ob1: {}, ucx: {}}
  workload:
    put: {kind: osu, program: osu_put_latency, sizes: 8, check: false}
    bw: {kind: osu, program: osu_bw, sizes: 8}
    app: {kind: command, argv: [./app], check: false}
    script: {kind: command, argv: [./app], check: false, mpi: false}
    send_recv: {}
  tuning: {plain: {}, own: {mca: {osc: %s}}}
"""


def pins(plans: Plans, cell: str, own: str = "rdma") -> tuple[dict[str, str], OneSided | None]:
    job = plans(cell, TEXT % own if "hydra" not in cell else TEXT.partition("  tuning")[0], ALL)
    argv = job.command.argv
    given = {argv[at + 1]: argv[at + 2] for at, token in enumerate(argv[:-2]) if token == "--mca"}
    return {name: value for name, value in given.items() if name.startswith("osc")}, job.demand.one_sided


LAST = {"osc_base_verbose": "60", "osc_sm_priority": "1"}


@pytest.mark.parametrize(
    ("cell", "mca", "wanted"),
    [
        ("five-ob1-put-plain", LAST, OneSided(("osc/rdma:tcp",), benchmark=True, logged=True)),
        ("four-ob1-put-plain", {"osc": "pt2pt"}, OneSided(("osc/rdma:tcp",), benchmark=True, pinned=True)),
        ("four-ucx-put-plain", {"osc": "ucx"}, OneSided(("ucx/tcp",), benchmark=True, pinned=True)),
        ("five-ob1-app-plain", LAST, OneSided(("osc/rdma:tcp",), logged=True)),
        ("four-ob1-app-plain", {}, OneSided(("osc/rdma:tcp",))),
        ("hydra-ucx-app", {}, OneSided(("ucx/tcp",), pinned=True)),
        ("five-ob1-bw-plain", {}, None),
        ("five-ob1-script-plain", {}, None),
        ("five-ob1-send_recv-plain", {}, None),
    ],
)
def test_windows_are_pinned_for_programs_that_may_use_them(
    plans: Plans, cell: str, mca: dict[str, str], wanted: OneSided | None
) -> None:
    assert pins(plans, cell) == (mca, wanted)


def test_a_parameter_of_the_matrix_that_replaces_the_pin_ends_the_proof(plans: Plans) -> None:
    found, asked = pins(plans, "four-ob1-put-own")
    assert found == {"osc": "rdma"}
    assert asked is not None
    assert not asked.pinned


def test_a_matrix_may_pin_windows_of_any_program_itself(plans: Plans) -> None:
    _, asked = pins(plans, "four-ob1-app-own", "pt2pt")
    assert asked is not None
    assert asked.pinned
