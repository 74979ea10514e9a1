"""Which hosts a test needs, by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.session.xdist.tasks import nodes_of, tasks


def cell(label: str, placement: str) -> Scenario:
    return Scenario("m", label, label, ("placement",), (placement,))


CELLS = [cell("a-ob1", "a"), cell("b-ob1", "b"), cell("a-ob1-fast", "a")]
NAMES = frozenset({"cpu on h1"})
ONE = frozenset({"h1"}), NAMES
HOSTS = {"a": frozenset({"h1"}), "b": frozenset({"h1", "h2"})}


@pytest.mark.parametrize(
    ("nodeid", "hosts"),
    [
        ("test_x.py::test[a-ob1]", frozenset({"h1"})),
        ("test_x.py::test[b-ob1]", frozenset({"h1", "h2"})),
        ("test_x.py::test[a-ob1-fast]", frozenset({"h1"})),
        ("test_x.py::test[twice-b-ob1]", frozenset({"h1", "h2"})),
        ("test_x.py::test[b-ob1-again]", frozenset({"h1", "h2"})),
        ("test_x.py::test[c-ob1]", frozenset()),
        ("test_x.py::test", frozenset()),
        ("test_[b-ob1].py::test", frozenset()),
    ],
)
def test_hosts_of_a_test(nodeid: str, hosts: frozenset[str]) -> None:
    (made,) = tasks([nodeid], CELLS, lambda cell: (HOSTS[cell.value("placement")], NAMES), {})
    assert (made.hosts, made.nodes) == (hosts, NAMES if hosts else frozenset())


def test_seconds_are_those_of_before_or_what_is_usual() -> None:
    nodeids = [f"t.py::t[{one.label}]" for one in CELLS]
    made = tasks(nodeids, CELLS, lambda _: ONE, {("m", "a-ob1"): 2.0, ("other", "x"): 4.0, ("m", "y"): 9.0})
    assert [task.seconds for task in made] == [2.0, 4.0, 4.0]
    assert [task.seconds for task in tasks(nodeids, CELLS, lambda _: ONE, {})] == [1.0, 1.0, 1.0]


def test_cells_of_one_placement_are_a_group() -> None:
    first, second, third = tasks([f"t.py::t[{one.label}]" for one in CELLS], CELLS, lambda _: ONE, {})
    assert first.group == third.group != second.group


@pytest.mark.parametrize("scheduler", ["slurm", "kubernetes"])
def test_what_a_scheduler_gives_has_no_host_and_no_name(tmp_path: Path, scheduler: str) -> None:
    matrix = tmp_path / "mine.yaml"
    matrix.write_text(f"""\
name: mine
hardware: {{cpu: {{}}, lent: {{runtime: {scheduler}, image: x}}}}
axes:
  placement: {{both: [cpu, lent], given: [lent, lent]}}
  transport: {{ob1: {{}}}}
  workload: {{allreduce: {{sizes: 8}}}}
""")
    suite = MatrixSet.load((matrix,), tmp_path, timeout=60, environ={})
    of = nodes_of(suite.matrices, suite.inventory)
    both, given = (of(cell) for cell in suite.scenarios)
    assert both == (frozenset({"localhost"}), frozenset({"cpu on localhost"}))
    assert given == (frozenset(), frozenset())
