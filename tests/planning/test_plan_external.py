"""Jobs of other projects' programs: placeholders per node, requirements, and refused cells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.config.inventory.hosts import Host
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.records import MessagePoint
from tests.planning.plan_cases import ALL, OB1, SITE, UCX, Plans, plans, site

__all__ = ["plans"]

TEXT = """\
name: demo
hardware:
  cpu:
  t4: {platform: cuda, arch: sm_75}
  v520: {platform: rocm, arch: gfx1011}
axes:
  placement: {two: [cpu, cpu], mixed: [t4, v520], three: [cpu, cpu, cpu], one: {nodes: [cpu], ranks_per_node: 2}}
  transport: {ob1: {}, ucx: {}}
  workload:
    osu: {program: osu_allgather, sizes: 8, iterations: 5, warmup: 0, arguments: [-d, "{platform}"]}
    lat: {kind: ucx_perftest, check: false, arguments: [-m, "{memory}"]}
    app: {kind: command, argv: [./app, "{node0}", "{x}"], mpi: false, check: false}
    bw: {kind: osu, program: osu_bw}
"""
HOSTS = {"t4": (Host("10.0.0.1"),), "v520": (Host("10.0.0.2"),)}
OSU = ("-m", "8:8", "-i", "5", "-x", "0", "-c", "-f", "-d")
START = ("/s/bin/python", "/p/run_external.py")


def test_ranks_of_one_kind_are_one_context(plans: Plans) -> None:
    job = plans("two-ob1-osu", TEXT)
    assert job.command.argv == ("/s/bin/mpirun", *OB1_LO, "-np", "2", *START, "--", "osu_allgather", *OSU, "cpu")
    assert job.demand.external is not None
    assert (job.demand.external.reader, job.demand.external.ranks, job.demand.external.iterations) == ("osu", 2, 5)
    assert job.demand.points == (MessagePoint(16, ""),)


OB1_LO = tuple("tcp,self" if token == "tcp,sm,self" else token for token in OB1)


def test_builds_are_per_vendor_so_a_mixed_job_has_a_context_each(plans: Plans) -> None:
    argv = plans("mixed-ob1-osu", TEXT, site(HOSTS)).command.argv
    first, second = (" ".join(argv).partition(" : ")[place] for place in (0, 2))
    assert first.endswith("osu_allgather -m 8:8 -i 5 -x 0 -c -f -d cuda")
    assert second.endswith("osu_allgather -m 8:8 -i 5 -x 0 -c -f -d rocm")


def test_a_client_is_told_where_its_server_is(plans: Plans) -> None:
    here = plans("two-ucx-lat", TEXT).command.argv
    assert here[: len(UCX) + 1] == ("/s/bin/mpirun", *UCX)
    command = " ".join(here).partition("run_external.py ")[2]
    assert command == (
        "--server 127.0.0.1:13337 -- ucx_perftest -p 13337 ::: ucx_perftest 127.0.0.1 -p 13337 -t tag_lat -s 8 -n 1000 "
        "-w 100 -f -m host"
    )
    there = " ".join(plans("mixed-ucx-lat", TEXT, site(HOSTS)).command.argv)
    assert there.count("--server 10.0.0.1:13337") == 2
    assert "ucx_perftest 10.0.0.1 -p 13337 -t tag_lat -s 8 -n 1000 -w 100 -f -m cuda" in there
    assert there.endswith("-f -m rocm")


def test_what_stands_for_nothing_known_is_left_as_it_is(plans: Plans) -> None:
    assert plans("two-ob1-app", TEXT).command.argv[-3:] == ("./app", "127.0.0.1", "{x}")


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("two-ob1-lat", "lat runs over ucx alone, whatever MPI does; the cell's transport is ob1"),
        ("three-ob1-bw", "bw needs exactly 2 ranks for osu_bw, this placement has 3"),
    ],
)
def test_what_cannot_be_is_skipped_with_the_reason(plans: Plans, cell: str, why: str) -> None:
    with pytest.raises(NotHere) as caught:
        plans(cell, TEXT)
    assert str(caught.value) == why


def test_two_ranks_of_one_node_are_a_pair_as_well(plans: Plans) -> None:
    assert "-np 2 env" in " ".join(plans("one-ucx-lat", TEXT).command.argv)


def test_mpich_starts_them_too(plans: Plans) -> None:
    text = TEXT.replace("one: {nodes: [cpu], ranks_per_node: 2}", "one: {nodes: [cpu, cpu], stack: mpich}")
    argv = plans("one-ucx-bw", text, replace(ALL, programs=SITE.programs)).command.argv
    assert argv[0] == "/m/bin/mpirun"
    assert "/m/bin/python /p/run_external.py -- osu_bw" in " ".join(argv)
