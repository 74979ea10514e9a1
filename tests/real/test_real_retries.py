"""Real nodes that lose each other: what is tried again has new ones, and so has the next cell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.real.nodes_here import AXES, properties

pytestmark = pytest.mark.real

Nodes = Callable[..., pytest.RunResult]
CUT = (
    "def test_cell(scenario, cluster, run):\n"
    "    if scenario.id.endswith('-b'):\n"
    "        # The sshd of its second node alone, in that node's own container.\n"
    "        each = 'grep -qs ^sshd $p/comm && kill -9 ${p#/proc/}'\n"
    "        cluster.nodes[1].host.check_output('for p in /proc/[0-9]*; do ' + each + '; done; true')\n"
    "    run()\n"
)
THREE = AXES + "  again: {a: {}, b: {}, c: {}}\n"


def test_nodes_without_a_way_to_each_other_are_made_anew_for_the_next_cell(
    nodes: Nodes, pytester: pytest.Pytester
) -> None:
    pytester.path.joinpath("test_cut.py").write_text(CUT)
    result = nodes(THREE, "test_cut.py")
    assert result.ret == 1
    cells = properties(pytester.path / "reports")
    assert [one["verdict"] for one in cells.values()] == ["ok", "new", "ok"]
    assert cells["pair-ob1-allreduce-b"]["outcome"] == "launch_failure"


def test_a_retry_has_new_nodes_and_makes_the_cell_flaky(nodes: Nodes, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("test_cut.py").write_text(CUT)
    result = nodes(THREE, "test_cut.py", "--hetgpu-retries", "1")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["flaky *pair-ob1-allreduce-b*passed at attempt 2, after launch failure*"])
    cells = properties(pytester.path / "reports")
    assert [one["verdict"] for one in cells.values()] == ["ok", "ok", "ok"]
    assert [one.get("attempts") for one in cells.values()] == [None, "2", None]
