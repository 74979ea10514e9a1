"""Variants of a cell: the jobs of further runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.plan import plan
from pytest_hetgpu.planning.variant import Variant, job_settings, of_point, varied
from tests.planning.plan_cases import SITE, TEXT, Reads


def job(reads: Reads, cell: str, variant: Variant) -> Job:
    matrix = reads(TEXT)
    (scenario,) = (scenario for scenario in expand(matrix) if scenario.id == cell)
    return plan(*varied(matrix, scenario, variant), replace(SITE, dropped=variant.dropped))


def test_without_differences_it_is_the_job_of_the_cell(reads: Reads) -> None:
    matrix = reads(TEXT)
    for scenario in expand(matrix):
        if scenario.id in ("odd-ob1-pairs", "odd-ucx-tcp-pairs"):
            continue
        assert job(reads, scenario.id, Variant()) == plan(matrix, scenario, SITE)


def test_one_point(reads: Reads) -> None:
    one = job(reads, "two-ob1-allreduce", of_point({"size": "16", "dtype": "int8", "place": "out"}))
    assert one.demand.points == (MessagePoint(16, "int8"),)
    assert one.label == "two-ob1-allreduce"
    both = job(reads, "two-ob1-allreduce", of_point({"size": "8", "dtype": "int8", "place": "in"}))
    assert both.demand.points == (MessagePoint(8, "int8", "in"),)


def test_other_numbers(reads: Reads) -> None:
    fewer = job(reads, "odd-ob1-pairs", Variant({"iterations": "1"}, nodes=("cpu", "cpu")))
    assert fewer.demand.ranks == 2
    assert "1" in fewer.command.argv[fewer.command.argv.index("--iterations") + 1]
    more = job(reads, "two-ob1-allreduce", Variant({"ranks_per_node": "2"}))
    assert more.demand.ranks == 4


def test_a_parameter_more(reads: Reads) -> None:
    argv = job(reads, "two-ob1-pairs", Variant(mca={"btl_tcp_if_include": "eth0"})).command.argv
    assert argv[argv.index("btl_tcp_if_include") + 1] == "eth0"


@pytest.mark.parametrize(
    ("cell", "variant", "gone", "kept"),
    [
        ("two-ucx-tcp-pairs", Variant(dropped=frozenset({"BOTH"})), "BOTH=", "UCX_TLS=tcp,self"),
        ("mixed-ob1-pairs", Variant(dropped=frozenset({"FROM"})), "FROM=", "BOTH=hardware"),
        ("mixed-ob1-pairs", Variant(dropped=frozenset({"pml_base_verbose"})), "pml_base_verbose", "FROM=lo2"),
    ],
)
def test_a_parameter_less(reads: Reads, cell: str, variant: Variant, gone: str, kept: str) -> None:
    text = " ".join(job(reads, cell, Variant()).command.argv)
    assert gone in text
    text = " ".join(job(reads, cell, variant).command.argv)
    assert gone not in text
    assert kept in text


def test_a_parameter_replaced_wherever_it_was(reads: Reads) -> None:
    text = " ".join(job(reads, "mixed-ucx-tcp-pairs", Variant(env={"BOTH": "mine"})).command.argv)
    assert "BOTH=mine" in text
    assert "BOTH=axis" not in text
    assert "BOTH=hardware" not in text


def test_other_nodes(reads: Reads) -> None:
    same = job(reads, "mixed-ob1-pairs", Variant(nodes=("lo2", "lo2")))
    assert [node.hardware.name for node in same.nodes] == ["lo2", "lo2"]


def test_the_settings_of_a_job(reads: Reads) -> None:
    mixed = job_settings(job(reads, "mixed-ob1-pairs", Variant()))
    assert mixed["pml"] == "ob1"
    assert mixed["btl"] == "tcp,sm,self"
    assert mixed["FROM"] == "lo2"
    assert mixed["pml_base_verbose"] == "1"
    fewer = job(reads, "mixed-ob1-pairs", Variant(dropped=frozenset(mixed)))
    assert job_settings(fewer) == {}
