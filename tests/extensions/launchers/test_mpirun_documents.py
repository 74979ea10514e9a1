"""Commands typed by hand for an AMD and an NVIDIA host, and ours for the same case."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest

import pytest_hetgpu.extensions.workloads
from pytest_hetgpu.config.inventory.hosts import Host
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.matrix import values
from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.extensions import registry
from pytest_hetgpu.model.job import Job, Stack
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.placement import SiteFacts
from pytest_hetgpu.planning.plan import plan
from tests.extensions.launchers.mpirun_words import Meaning, Rank, meaning

SCRIPT = '''
"""A program of the user's own."""

from pytest_hetgpu.extensions.workloads.base import Workload, WorkloadSettings


class ScriptSettings(WorkloadSettings):
    """Its file and arguments."""

    file: str
    arguments: list[str] = []


class Script(Workload):
    """Runs it."""

    Settings = ScriptSettings
    operation = "script"

    def program(self):
        return (self.settings.file, *self.settings.arguments)

    def points(self):
        return ()
'''

CONDA = "/opt/conda/envs/py_3.12/bin/python"
HEAD = """\
name: document
hardware:
  g4ad: {platform: rocm, arch: gfx1011, fabric: {netdev: ens5}}
  g4dn: {platform: cuda, arch: sm_75, fabric: {netdev: ens5}}
  t3: {mpi: {stack: openmpi-5}}
axes:
  placement:
    mixed: [g4ad, g4dn]
    led: {nodes: [g4dn, g4ad], launch_from: t3}
"""
TORCH = "MASTER_ADDR: 10.0.0.2, MASTER_PORT: 1234"
BLAS = "TORCH_BLAS_PREFER_CUBLASLT: 0, TORCH_BLAS_PREFER_HIPBLASLT: 0"
UCC_OVER_UCX = """\
  transport:
    ucc: {over: tcp}
transports:
  tcp: {family: ucx, tls: tcp, mca: {osc: ucx, btl: ^uct, opal_common_ucx_tls: tcp}}
"""
NO_LARGE_BAR = """\
UCX_ROCM_COPY_D2H_THRESH: 0, UCX_ROCM_COPY_H2D_THRESH: 0, UCC_EC_ROCM_REDUCE_HOST_LIMIT: 0,
      UCC_EC_ROCM_COPY_HOST_LIMIT: 0, OMPI_MCA_mpi_accelerator_rocm_memcpyD2H_limit: 0,
      OMPI_MCA_mpi_accelerator_rocm_memcpyH2D_limit: 0"""

# What a run needs to show which transport it used, what keeps collectives on it, and what lets UCX use devices that
# are no RDMA: not typed by hand.
SHOW = {"mca": {"ompi_display_comm", "coll"}, "env": {"UCX_LOG_LEVEL", "UCC_LOG_LEVEL"}}


class Case(NamedTuple):
    """One command of a document, its axes, and our additions: `mca NAME` and `env NAME`."""

    command: str
    axes: str
    added: frozenset[str] = frozenset()


def torch(file: str, env: str, arguments: str = "") -> str:
    return f"  workload:\n    script: {{file: {file}, arguments: [{arguments}], env: {{{env}}}}}\n"


AWS = "mpirun -np 2 --allow-run-as-root --host 10.0.0.1,10.0.0.2 -x MASTER_ADDR=10.0.0.2 -x MASTER_PORT=1234"
AWS_UCC = (
    f"{AWS} -x UCX_NET_DEVICES=ens5 --mca pml ucx --mca osc ucx --mca coll_ucc_enable 1 --mca coll_ucc_priority 100 "
    "-x TORCH_BLAS_PREFER_CUBLASLT=0 "
    "-x TORCH_BLAS_PREFER_HIPBLASLT=0 -x UCX_TLS=tcp -mca btl ^uct --mca pml_ucx_tls tcp"
)
DDP = "mpirun --allow-run-as-root -np 2 -H 10.0.0.2,10.0.0.1"
DDP_MASTER = f"{DDP} -x MASTER_ADDR=10.0.0.2 -x MASTER_PORT=1234"
AUTO = "  transport: {auto: {}}\n"
CASES = {
    "mixed: full training": Case(
        f"{AWS_UCC} {CONDA} /test_full_train.py 10 10",
        UCC_OVER_UCX.replace("transports:", torch("/test_full_train.py", f"{TORCH}, {BLAS}", "10, 10") + "transports:"),
        frozenset({"mca opal_common_ucx_devices"}),
    ),
    "mixed: send and receive": Case(
        f"{AWS_UCC} {CONDA} /test_simple.py",
        UCC_OVER_UCX.replace("transports:", torch("/test_simple.py", f"{TORCH}, {BLAS}") + "transports:"),
        frozenset({"mca opal_common_ucx_devices"}),
    ),
    "mixed: without ucx": Case(
        f"{AWS} --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include ens5 {CONDA} /test_simple.py",
        "  transport: {ob1: {}}\n" + torch("/test_simple.py", TORCH),
    ),
    "led: on cpus": Case(
        f"{DDP_MASTER} {CONDA} /test/multinode_ddp_mpi.py 1000 1000",
        AUTO + torch("/test/multinode_ddp_mpi.py", TORCH, "1000, 1000"),
    ),
    "led: on gpus": Case(
        f"{DDP_MASTER} {CONDA} /test/multinode_ddp_mpi_gpu.py 1000 1000",
        AUTO + torch("/test/multinode_ddp_mpi_gpu.py", TORCH, "1000, 1000"),
    ),
    "led: mpi backend": Case(
        f"{DDP} -mca pml ucx -mca coll_ucc_enable 1 -mca coll_ucc_priority 100 -x UCX_ROCM_COPY_D2H_THRESH=0 "
        "-x UCX_ROCM_COPY_H2D_THRESH=0 -x UCC_EC_ROCM_REDUCE_HOST_LIMIT=0 -x UCC_EC_ROCM_COPY_HOST_LIMIT=0 "
        "-x OMPI_MCA_mpi_accelerator_rocm_memcpyD2H_limit=0 -x OMPI_MCA_mpi_accelerator_rocm_memcpyH2D_limit=0 "
        f"{CONDA} /test/multinode_ddp_mpi_gpu.py 1000 1000",
        "  transport:\n    ucc: {over: any}\n"
        + torch("/test/multinode_ddp_mpi_gpu.py", NO_LARGE_BAR, "1000, 1000")
        + "transports:\n  any: {family: ucx, tls: any}\n",
        frozenset({"mca opal_common_ucx_devices", "mca opal_common_ucx_tls", "env UCX_TLS", "env UCX_NET_DEVICES"}),
    ),
}

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/opt/ompi", "/opt/ompi/bin/mpirun", CONDA)
HOSTS = {"g4ad": (Host("10.0.0.1"),), "g4dn": (Host("10.0.0.2"),), "t3": (Host("10.0.0.9"),)}


@pytest.fixture(autouse=True)
def scripts(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a workload that runs a user's own program."""
    folder = tmp_path_factory.mktemp("families")
    (folder / "script.py").write_text(SCRIPT)
    monkeypatch.setattr(
        pytest_hetgpu.extensions.workloads, "__path__", [*pytest_hetgpu.extensions.workloads.__path__, str(folder)]
    )
    caches = (registry.names, registry.shipped, registry._classes, values.entry_model)
    for cache in caches:
        cache.cache_clear()
    yield
    sys.modules.pop("pytest_hetgpu.extensions.workloads.script", None)
    for cache in caches:
        cache.cache_clear()


def job(reads: Callable[..., Matrix], name: str) -> Job:
    document = reads(HEAD + CASES[name].axes)
    placement = name.partition(":")[0]
    (scenario,) = (cell for cell in expand(document) if cell.value("placement") == placement)
    site = SiteFacts({"openmpi-5": STACK}, "", root=True, inventory=Inventory(True, "hosts.yaml", HOSTS))
    return plan(document, scenario, site)


def without(ours: Meaning, added: Mapping[str, set[str]]) -> Meaning:
    ranks = [Rank(r.host, r.program, {k: v for k, v in r.env.items() if k not in added["env"]}) for r in ours.ranks]
    return Meaning(ranks, {k: v for k, v in ours.mca.items() if k not in added["mca"]}, ours.flags)


@pytest.mark.parametrize("name", CASES)
def test_ours_means_what_was_typed_by_hand(reads: Callable[..., Matrix], name: str) -> None:
    command, _, added = CASES[name]
    typed = meaning(shlex.split(command)[1:])
    planned = meaning(job(reads, name).command.argv[1:])
    extra = {kind: {word.split()[1] for word in added if word.startswith(kind)} for kind in SHOW}
    assert extra["mca"] <= set(planned.mca)
    assert all(extra["env"] <= set(rank.env) for rank in planned.ranks)
    # A program's file is below the folder of programs, which is empty here.
    planned = without(planned, {kind: SHOW[kind] | extra[kind] for kind in SHOW})
    assert [rank.program[1].replace("//", "/") for rank in planned.ranks] == [rank.program[1] for rank in typed.ranks]
    assert [(r.host, r.env, r.program[0], r.program[2:]) for r in planned.ranks] == [
        (r.host, r.env, r.program[0], r.program[2:]) for r in typed.ranks
    ]
    assert (planned.mca, planned.flags, len(planned.ranks)) == (typed.mca, typed.flags, 2)


def test_the_launcher_of_the_second_document_has_no_ranks(reads: Callable[..., Matrix]) -> None:
    found = job(reads, "led: on cpus")
    assert found.launcher is not None
    assert (found.launcher.host, found.launcher.ranks, found.launcher.index) == ("10.0.0.9", 0, 2)
    assert [node.host for node in found.nodes] == ["10.0.0.2", "10.0.0.1"]
    assert sorted({node.host for node in found.all_nodes}) == ["10.0.0.1", "10.0.0.2", "10.0.0.9"]
    assert job(reads, "mixed: without ucx").launcher is None


def test_the_reader_of_commands_knows_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="--bind-to is not known"):
        meaning(["-np", "2", "--bind-to", "core", "prog"])
    both = meaning(shlex.split("-np 1 -H a:1 env A=1 p : -np 2 -host b:2 -x B=2 p x"))
    assert [(rank.host, dict(rank.env), rank.program) for rank in both.ranks] == [
        ("a", {"A": "1"}, ("p",)),
        ("b", {"B": "2"}, ("p", "x")),
        ("b", {"B": "2"}, ("p", "x")),
    ]
