"""From a cell to its processes, token by token."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.config.inventory.hosts import Host
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Expectation, Node
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.plan import plan
from tests.planning.plan_cases import ALL, COLL, OB1, PAIRS, REDUCE, SITE, STACK, TEXT, UCX, Plans, Reads, plans, site

__all__ = ["plans"]


def test_a_uniform_job_is_one_context(plans: Plans) -> None:
    assert plans("two-ob1-pairs").command.argv == ("/s/bin/mpirun", *OB1, "-np", "2", *PAIRS)
    assert plans("two-ucx-tcp-allreduce").command.argv == (
        *("/s/bin/mpirun", *UCX, "-np", "2"),
        *("env", "BOTH=axis", "UCX_LOG_LEVEL=info", "UCX_TLS=tcp,self", *REDUCE),
    )


def test_nodes_that_differ_are_contexts_with_an_environment_each(plans: Plans) -> None:
    # What the nodes share is before the contexts; a parameter that only one has is in its environment.
    assert plans("mixed-ob1-pairs").command.argv == (
        *(
            "/s/bin/mpirun",
            "--mca",
            "btl",
            "tcp,sm,self",
            *COLL,
            "--mca",
            "ompi_display_comm",
            "mpi_init",
            "--mca",
            "pml",
            "ob1",
        ),
        *("-np", "1", "env", "OMPI_MCA_btl_tcp_if_include=lo", *PAIRS),
        ":",
        *("-np", "1", "env", "BOTH=hardware", "FROM=lo2"),
        *("OMPI_MCA_btl_tcp_if_include=eth1", "OMPI_MCA_pml_base_verbose=1", *PAIRS),
    )


def test_axis_values_override_the_transport_and_that_the_hardware(plans: Plans) -> None:
    text = TEXT + "  tuning: {over: {env: {UCX_LOG_LEVEL: debug, FROM: tuning}, mca: {pml: cm, pml_base_verbose: 9}}}\n"
    argv = plans("mixed-ucx-tcp-pairs-over", text).command.argv
    assert argv[argv.index("pml") + 1] == "cm"
    assert argv[argv.index("pml_base_verbose") + 1] == "9"
    contexts = " ".join(argv).split(" : ")
    for context in contexts:
        assert "UCX_LOG_LEVEL=debug" in context
        assert "FROM=tuning" in context
        assert "BOTH=axis" in context
    assert "UCX_NET_DEVICES=eth1" in contexts[1]
    assert "UCX_NET_DEVICES" not in contexts[0]


def test_an_environment_variable_of_the_user_beats_a_parameter_in_the_environment(plans: Plans) -> None:
    text = TEXT + "  tuning: {over: {env: {OMPI_MCA_btl_tcp_if_include: eth9}}}\n"
    job = plans("mixed-ob1-pairs-over", text)
    argv = job.command.argv
    # The parameter says the same: on the command line it would beat the variable.
    assert argv[argv.index("btl_tcp_if_include") + 1] == "eth9"
    assert [token for token in argv if "if_include=" in token] == ["OMPI_MCA_btl_tcp_if_include=eth9"] * 2
    assert {str(node.interface) for node in job.nodes} == {"eth9 (btl_tcp_if_include of the cell names it)"}


def test_no_context_ever_uses_x(plans: Plans, reads: Reads) -> None:
    document = reads(TEXT)
    for scenario in expand(document):
        if scenario.value("placement") != "odd":
            assert "-x" not in plan(document, scenario, SITE).command.argv


def test_ranks_per_node_make_larger_contexts(plans: Plans) -> None:
    text = TEXT + "  ranks_per_node: [3]\n"
    job = plans("mixed-ob1-pairs-ranks_per_node3", text)
    argv = job.command.argv
    assert [argv[place + 1] for place, token in enumerate(argv) if token == "-np"] == ["3", "3"]
    assert [node.ranks for node in job.nodes] == [3, 3]
    assert job.demand.ranks == 6
    uniform = plans("two-ob1-pairs-ranks_per_node3", text).command.argv
    assert uniform[uniform.index("-np") + 1] == "6"


def test_equal_nodes_that_are_not_neighbours_stay_in_order(plans: Plans) -> None:
    text = TEXT.replace("odd: [cpu, cpu, cpu]", "odd: [cpu, lo2, cpu, cpu]")
    argv = plans("odd-ob1-pairs", text).command.argv
    assert [argv[place + 1] for place, token in enumerate(argv) if token == "-np"] == ["1", "1", "2"]


def test_root_and_cores_of_the_site(plans: Plans) -> None:
    argv = plans("two-ob1-pairs", site=replace(SITE, root=True, cores=1)).command.argv
    assert argv[1:4] == ("--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE")


def test_a_job_knows_its_cell_and_what_it_must_show(plans: Plans) -> None:
    job = plans("mixed-ucx-tcp-allreduce", site=replace(SITE, timeout=30))
    assert (job.matrix, job.scenario, job.label, job.timeout) == (
        "demo",
        "mixed-ucx-tcp-allreduce",
        "mixed-ucx-tcp-allreduce",
        30,
    )
    assert job.axes == {"placement": "mixed", "transport": "ucx-tcp", "workload": "allreduce"}
    demand = job.demand
    assert (demand.ranks, demand.stack, demand.transport_family, demand.transports) == (2, STACK, "ucx", ("ucx/tcp",))
    assert demand.points == (
        MessagePoint(8, "int8"),
        MessagePoint(16, "int8"),
        MessagePoint(8, "float32"),
        MessagePoint(16, "float32"),
    )
    assert (demand.operation, demand.measured) == ("allreduce", True)
    assert demand.facts == {"openmpi": "5.0.11", "stack": "openmpi-5", "memory": "host"}


def test_a_cell_may_have_its_own_timeout(plans: Plans) -> None:
    assert (
        plans("two-ob1-pairs", TEXT.replace("send_recv, sizes: 8", "send_recv, sizes: 8, timeout: 2.5")).timeout == 2.5
    )


def test_a_capability_of_one_node_counts_for_expectations(plans: Plans) -> None:
    # A known crash of a mixed job may need only one node that lacks something.
    text = TEXT + "expect:\n  - {where: {placement: mixed}, outcome: crash, when: {capability: big-pages}}\n"
    demand = plans("mixed-ob1-pairs", text).demand
    assert demand.capabilities == {"big-pages"}
    assert [found.kinds for found in demand.expectations] == [(Kind.CRASH,)]
    assert isinstance(demand.expectations[0], Expectation)
    assert plans("two-ob1-pairs", text).demand.capabilities == frozenset()


def test_the_same_matrix_and_site_give_the_same_job(plans: Plans) -> None:
    assert plans("mixed-ucx-tcp-allreduce") == plans("mixed-ucx-tcp-allreduce")
    assert repr(plans("mixed-ob1-allreduce")) == repr(plans("mixed-ob1-allreduce"))


def test_hosts_are_sorted_and_each_once(plans: Plans) -> None:
    hosts = {"cpu": (Host("b"), Host("a")), "lo2": (Host("b"),)}
    job = plans("odd-ob1-allreduce", site=site(hosts))
    assert [node.host for node in job.nodes] == ["b", "a", "b"]
    assert sorted({node.host for node in job.nodes}) == ["a", "b"]
    assert {node.host for node in plans("mixed-ob1-allreduce", site=site(hosts)).nodes} == {"b"}
    assert {node.host for node in plans("two-ob1-allreduce").nodes} == {"localhost"}


def test_nodes_know_their_hardware_host_and_ranks(plans: Plans, reads: Reads) -> None:
    kinds = reads(TEXT).hardware
    assert plans("mixed-ob1-pairs").nodes == (
        Node(
            0, kinds["cpu"], "localhost", 1, "localhost", STACK, interface=InterfaceChoice("lo", InterfaceChoice().why)
        ),
        Node(
            1,
            kinds["lo2"],
            "localhost",
            1,
            "localhost",
            STACK,
            interface=InterfaceChoice("eth1", "the fabric of lo2 names it"),
        ),
    )


REQUIRES = {
    "big-pages": "requires the capability big-pages; node 0 (cpu on localhost) has none",
    "platform=rocm": "requires platform=rocm; node 0 (cpu on localhost) has platform=cpu",
    "arch=sm_75": "requires arch=sm_75; node 0 (cpu on localhost) has arch=",
    "fabric=roce": "requires fabric=roce; node 0 (cpu on localhost) has fabric=tcp",
    "[runtime=local, fast]": "requires the capability fast; node 0 (cpu on localhost) has none",
}


@pytest.mark.parametrize("requires", REQUIRES)
def test_what_a_node_must_have_and_has_not(plans: Plans, requires: str) -> None:
    with pytest.raises(NotHere) as caught:
        plans("mixed-ob1-pairs-a", TEXT + f"  needs: {{a: {{requires: {requires}}}}}\n")
    assert str(caught.value) == REQUIRES[requires]


def test_every_node_must_have_it_and_a_host_may_bring_it(plans: Plans) -> None:
    text = TEXT + "  needs: {a: {requires: [big-pages, platform=cpu]}}\n"
    with pytest.raises(NotHere, match=re.escape("node 1 (cpu on y) has fast")):
        plans(
            "two-ob1-pairs-a",
            text,
            site(
                {"cpu": (Host("x", capabilities=frozenset({"big-pages"})), Host("y", capabilities=frozenset({"fast"})))}
            ),
        )
    has = Host("x", capabilities=frozenset({"big-pages"}))
    assert plans("two-ob1-pairs-a", text, site({"cpu": (has, has)}))


def test_a_world_that_a_workload_cannot_use(plans: Plans) -> None:
    with pytest.raises(NotHere) as caught:
        plans("odd-ob1-pairs")
    assert str(caught.value) == "pairs needs an even number of ranks, this placement has 3"
    assert plans("odd-ob1-pairs-ranks_per_node2", TEXT + "  ranks_per_node: [2]\n")


def test_hardware_that_the_inventory_lacks(plans: Plans) -> None:
    with pytest.raises(NotHere, match="needs hardware lo2, which the inventory hosts.yaml lacks"):
        plans("mixed-ob1-pairs", site=site({"cpu": (Host("a"),)}))


def test_a_plan_looks_nothing_up(plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = plans("mixed-ucx-tcp-allreduce")
    for name in ("HOME", "PATH", "UCX_TLS"):
        monkeypatch.setenv(name, "elsewhere")
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    assert plans("mixed-ucx-tcp-allreduce") == before


def test_one_launcher_cannot_start_two_stacks(reads: Reads) -> None:
    document = reads(TEXT)
    hardware = {**document.hardware, "lo2": replace(document.hardware["lo2"], stack="openmpi-4")}
    (scenario,) = (scenario for scenario in expand(document) if scenario.id == "mixed-ob1-pairs")
    with pytest.raises(NotHere, match=re.escape("nodes of different stacks (openmpi-4, openmpi-5)")):
        plan(replace(document, hardware=hardware), scenario, ALL)
