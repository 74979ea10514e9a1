"""Common parts of tests of plans: a matrix, a site, and a fixture that plans one of its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.config.inventory.hosts import Host
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.model.job import Job, Stack
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.placement import SiteFacts
from pytest_hetgpu.planning.plan import plan

Reads = Callable[..., Matrix]
Plans = Callable[..., Job]

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
SITE = SiteFacts({"openmpi-5": STACK}, "/p", cores=8)
PYTHON = ("/s/bin/python", "-m", "mpi4py")
PAIRS = (
    *(*PYTHON, "/p/send_recv.py", "--sizes", "8", "--dtypes", "float32"),
    *("--iterations", "20", "--warmup", "5", "--repeats", "5"),
)
REDUCE = (
    *PYTHON,
    "/p/allreduce.py",
    "--sizes",
    "8,16",
    "--dtypes",
    "int8,float32",
    "--iterations",
    "3",
    "--warmup",
    "5",
    "--repeats",
    "5",
)

TEXT = """\
name: demo
hardware:
  cpu:
  lo2: {fabric: {netdev: eth1}, env: {FROM: lo2, BOTH: hardware}, mca: {pml_base_verbose: 1}, capabilities: [big-pages]}
axes:
  placement:
    two: [cpu, cpu]
    mixed: [cpu, lo2]
    odd: [cpu, cpu, cpu]
  transport:
    ob1: {btl: [tcp, sm, self]}
    ucx-tcp: {family: ucx, env: {BOTH: axis}}
  workload:
    pairs: {kind: send_recv, sizes: 8}
    allreduce: {sizes: 8..16, dtype: [int8, float32], iterations: 3}
"""


@pytest.fixture
def plans(reads: Reads) -> Plans:
    """Plan one cell of a text."""

    def plan_cell(cell: str, text: str = TEXT, site: SiteFacts = SITE) -> Job:
        document = reads(text)
        (scenario,) = (scenario for scenario in expand(document) if scenario.id == cell)
        return plan(document, scenario, site)

    return plan_cell


COLL = ("--mca", "coll", "^acoll,fca,hcoll,sm,smdirect,xhc")
OB1 = (
    "--mca",
    "btl",
    "tcp,sm,self",
    "--mca",
    "btl_tcp_if_include",
    "lo",
    *COLL,
    "--mca",
    "ompi_display_comm",
    "mpi_init",
    "--mca",
    "pml",
    "ob1",
)
UCX = (
    *COLL,
    *("--mca", "ompi_display_comm", "mpi_init", "--mca", "opal_common_ucx_devices", "any"),
    *("--mca", "opal_common_ucx_tls", "any", "--mca", "pml", "ucx"),
)


def site(hosts: Mapping[str, tuple[Host, ...]], **changes: Any) -> SiteFacts:
    return replace(SITE, inventory=Inventory(True, "hosts.yaml", hosts), **changes)


FOUR = replace(STACK, name="openmpi-4", version="4.1.8", launcher="/four/bin/mpirun")
SYSTEM = replace(STACK, name="openmpi-system", version="5.0.3", prefix="/usr", launcher="/usr/bin/mpirun")
MPICH = Stack("mpich", "MPICH", "5.0.2", "/m", "/m/bin/mpirun", "/m/bin/python")
TORCH = Stack("torch", "torch", "2.13.0", "/t", "/t/bin/torchrun", "/t/bin/python", torch=True)
ALL = replace(SITE, stacks={stack.name: stack for stack in (STACK, FOUR, SYSTEM, MPICH, TORCH)})
