"""A command in two forms: users read the values of variables, and a machine's command lines show none of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_hetgpu.model.job import Command, Job, Stack
from pytest_hetgpu.planning.placement import DiscoveredNode
from pytest_hetgpu.store.encode import from_json, to_json
from tests.planning.plan_cases import ALL, SITE, Plans, plans

__all__ = ["plans"]

TEXT = """
name: demo
hardware:
  a: {runtime: %s, mpi: {stack: %s}, env: {OF_HARDWARE: value-one}}
  b: {runtime: %s, mpi: {stack: %s}, env: {OF_HARDWARE: value-two}}
axes:
  placement: {same: [a, a], mixed: [a, b]}
  transport: {auto: {env: {OF_TRANSPORT: value-three}}, gloo: {env: {OF_TRANSPORT: value-three}}}
  workload: {allreduce: {sizes: 8, env: {OF_WORKLOAD: value-four}}}
  more: {%s: {launcher: %s, env: {OF_OPTION: value-five}}}
"""
VALUES = ("value-one", "value-three", "value-four", "value-five")
READ = ("-I", "-S", "/p/with_variables.py")
CELLS = [
    ("openmpi-5", "mpirun", "auto"),
    ("openmpi-4", "mpirun", "auto"),
    ("mpich", "mpirun", "auto"),
    ("torch", "torchrun", "gloo"),
]


def job(plans: Plans, cell: tuple[str, str, str], placement: str) -> Job:
    stack, launcher, transport = cell
    text = TEXT % ("local", stack, "local", stack, launcher, launcher)
    return plans(f"{placement}-{transport}-allreduce-{launcher}", text, site=replace(ALL, programs="/p"))


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: str(cell[0]))
def test_users_read_the_values_and_ps_shows_none(plans: Plans, cell: tuple[str, str, str]) -> None:
    for placement, values in (("same", VALUES), ("mixed", (*VALUES, "value-two"))):
        command = job(plans, cell, placement).command
        shown, started = " ".join(command.argv), " ".join(command.started)
        assert all(value in shown for value in values)
        assert "value-" not in started
        assert "with_variables.py" not in shown
        files = {name: json.loads(content) for name, content in command.files().items()}
        assert len(files) == len(values) - len(VALUES) + 1 or cell[1] == "torchrun"
        assert {value for env in files.values() for value in env.values()} >= set(values)


def test_a_program_is_started_by_the_reader_of_its_file(plans: Plans) -> None:
    command = job(plans, CELLS[0], "mixed").command
    first, last = (("-np", "1", "/s/bin/python", *READ, f"variables-{place}") for place in range(2))
    program = command.argv[command.argv.index("OF_WORKLOAD=value-four") + 1 : command.argv.index(":")]
    assert command.started == (*command.argv[: command.argv.index("-np")], *first, *program, ":", *last, *program)
    assert set(command.variables["variables-0"].items()) - set(command.variables["variables-1"].items()) == {
        ("OF_HARDWARE", "value-one")
    }


def test_on_nodes_the_file_lies_beside_the_programs(plans: Plans) -> None:
    text = TEXT % ("docker, image: debian", "openmpi-5", "docker, image: debian", "openmpi-5", "mpirun", "mpirun")
    nodes = {0: DiscoveredNode("/tmp/hetgpu-1"), 1: DiscoveredNode("/tmp/hetgpu-2")}
    started = plans("same-auto-allreduce-mpirun", text, site=replace(SITE, discovered=nodes)).command.started
    assert [word for word in started if "variables" in word] == [
        *("/tmp/hetgpu-1/programs/with_variables.py", "/tmp/hetgpu-1/variables-0"),
        *("/tmp/hetgpu-2/programs/with_variables.py", "/tmp/hetgpu-2/variables-0"),
    ]


def test_a_command_without_variables_has_one_form(plans: Plans) -> None:
    text = "name: demo\nhardware: {a: {runtime: local}}\naxes: {placement: {one: [a]}, transport: {auto: {}}, "
    command = plans("one-auto-barrier", text + "workload: {barrier: {}}}").command
    assert command.started is command.argv
    assert command.files() == {}


def test_a_stored_command_holds_only_the_form_for_users(plans: Plans) -> None:
    command = job(plans, CELLS[0], "same").command
    assert set(to_json(command)) == {"argv", "env"}
    read = from_json(Command, {**to_json(command), "": ["other"]})
    assert (read, read.started) == (command, command.argv)


def test_every_stack_is_one_of_these() -> None:
    assert {cell[0] for cell in CELLS} <= {stack.name for stack in ALL.stacks.values() if isinstance(stack, Stack)}
