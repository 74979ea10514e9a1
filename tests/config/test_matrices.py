"""The matrices that are shipped: each with its inventory example is good to the last cell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.data_paths import paths
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs, find_matrix
from pytest_hetgpu.reporting import messages
from tests.extensions.launchers.mpirun_words import Meaning, meaning
from tests.extensions.launchers.test_mpirun_documents import AWS_UCC, CASES, DDP_MASTER

ROOT = Path(__file__).resolve().parents[2]
MATRICES = {
    path.name.removesuffix(".yaml"): path
    for path in sorted((ROOT / "matrices").glob("*.yaml"))
    if not path.name.endswith(".hosts.yaml")
}
# Cells that run, and cells that are kept out with a reason.
CELLS = {"aws": (156, 40), "lumi": (148, 14), "roce": (140, 0)}
DOCUMENTED = re.compile(r"(192\.0\.2|198\.51\.100|203\.0\.113)\.\d+")


@cache
def suite(name: str) -> MatrixSet:
    hosts = MATRICES[name].with_name(f"{name}.hosts.yaml")
    inventory = hosts if hosts.exists() else None
    return MatrixSet.load(
        [MATRICES[name]], ROOT, timeout=60, environ={"XDG_CACHE_HOME": "cache"}, inputs=RunInputs(inventory)
    )


@cache
def jobs(name: str) -> Mapping[str, Job]:
    """Every cell that runs, planned; NotHere for one that does not fit its hosts, its stack or its ranks."""
    loaded = suite(name)
    return {s.id: loaded.job(s, even_if_absent=True) for s in loaded.scenarios if not s.excluded}


@pytest.mark.parametrize("name", MATRICES)
def test_every_cell_can_be_planned_and_shown(name: str) -> None:
    assert jobs(name)
    shown = "\n".join(messages.plan_lines(suite(name), suite(name).scenarios))
    assert "not run" not in shown
    assert all(f"\n{label}\n" in shown for label in jobs(name))
    assert "-x" not in {token for job in jobs(name).values() for token in launchers_own(job)}


# Lists with members of several classes: the best of each path, which must carry.
BEST = {
    ("roce", "ucx-rc"): {"on-host": "sm", "off-host": "rc"},
    ("roce", "ucx-ud"): {"on-host": "sm", "off-host": "ud"},
    ("roce", "ucx-tcp"): {"on-host": "sm", "off-host": "tcp"},
    ("roce", "ob1-tcp"): {"on-host": "sm", "off-host": "tcp"},
}


@pytest.mark.parametrize("name", MATRICES)
def test_lists_of_several_classes_mean_their_best(name: str) -> None:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for job in jobs(name).values():
        for path, duty in job.demand.duties.items():
            if duty.asked != duty.best:
                found.setdefault((name, job.axes["transport"]), {})[path] = " ".join(duty.best)
    assert found == {key: best for key, best in BEST.items() if key[0] == name}


@pytest.mark.parametrize("name", MATRICES)
def test_a_path_without_a_duty_is_the_library_s_own_choice(name: str) -> None:
    for job in jobs(name).values():
        open_ones = set(paths(job.nodes)) - set(job.demand.duties)
        assert not open_ones or job.demand.transports in (("*",), ("nccl/*",)) or job.demand.transport_family == "nccl"


def launchers_own(job: Job) -> Iterator[str]:
    """The tokens of a command without those that a foreign program is given, which come behind a `--`."""
    foreign = False
    for token in job.command.argv:
        foreign = (foreign or token == "--") and token != ":"
        if not foreign:
            yield token


@pytest.mark.parametrize("name", CELLS)
def test_the_number_of_cells(name: str) -> None:
    excluded = [scenario for scenario in suite(name).scenarios if scenario.excluded]
    assert (len(jobs(name)), len(excluded)) == CELLS[name]


@pytest.mark.parametrize("name", CELLS)
def test_an_inventory_example_names_no_host_that_may_exist(name: str) -> None:
    hosts = MATRICES[name].with_name(f"{name}.hosts.yaml").read_text(encoding="utf-8")
    assert DOCUMENTED.search(hosts) or "\nslurm:" in hosts
    assert [
        found[0] for found in re.finditer(r"\b\d+\.\d+\.\d+\.\d+\b", hosts) if not DOCUMENTED.fullmatch(found[0])
    ] == []
    # Slurm's nodes have no host yet.
    bound = [node for job in jobs(name).values() for node in job.all_nodes if node.hardware.runtime != "slurm"]
    assert {node.host for node in bound} <= set(re.findall(r"address: ([\d.]+)", hosts))


@pytest.mark.parametrize("name", MATRICES)
def test_images_are_folders_of_the_repository(name: str) -> None:
    folders = {node.image.folder for job in jobs(name).values() for node in job.all_nodes if node.image}
    assert all(Path(folder).parent == ROOT / "containers" for folder in folders)


def test_an_inventory_is_none_of_the_matrices_that_are_known() -> None:
    with pytest.raises(UsageError) as caught:
        find_matrix(Path("matrices/aws.yml"), ROOT)
    assert "aws.yaml" in str(caught.value)
    assert "hosts.yaml" not in str(caught.value)


def planned(job: Job) -> Meaning:
    """What a job's command says, by the addresses of its nodes."""
    found = meaning(job.command.argv[1:])
    addresses = {node.name: node.host for node in job.nodes}
    ranks = [rank.__class__(addresses[rank.host], rank.program, rank.env) for rank in found.ranks]
    return Meaning(ranks, found.mca, found.flags)


def typed(command: str, hosts: Mapping[str, str]) -> Meaning:
    """The same of a document's command. PyTorch's variables are for programs that ours are not."""
    found = meaning(shlex.split(command)[1:])
    ranks = [
        rank.__class__(
            hosts[rank.host], (), {k: v for k, v in rank.env.items() if not k.startswith(("MASTER_", "TORCH_"))}
        )
        for rank in found.ranks
    ]
    return Meaning(ranks, found.mca, found.flags)


SHOWN = {"coll", "ompi_display_comm", "opal_common_ucx_devices"}
LOGGED = {"UCX_LOG_LEVEL": "info", "UCC_LOG_LEVEL": "info"}
DOCUMENTS = {
    "mixed-ucc-host-allreduce-default": (f"{AWS_UCC} p", {"10.0.0.1": "192.0.2.11", "10.0.0.2": "192.0.2.21"}),
    "mixed-ob1-tcp-send_recv-default": (
        CASES["mixed: without ucx"].command,
        {"10.0.0.1": "192.0.2.11", "10.0.0.2": "192.0.2.21"},
    ),
}


@pytest.mark.parametrize("cell", DOCUMENTS)
def test_a_cell_of_aws_is_what_was_typed_on_its_hosts(cell: str) -> None:
    ours, theirs = planned(jobs("aws")[cell]), typed(*DOCUMENTS[cell])
    assert {name: value for name, value in ours.mca.items() if name not in SHOWN} == theirs.mca
    assert [rank.host for rank in ours.ranks] == [rank.host for rank in theirs.ranks]
    for mine, rank in zip(ours.ranks, theirs.ranks, strict=True):
        assert {k: v for k, v in mine.env.items() if LOGGED.get(k) != v} == rank.env
    assert ours.flags == theirs.flags


def test_the_cure_is_the_second_document_s() -> None:
    command = CASES["led: mpi backend"].command
    theirs = typed(command, {"10.0.0.2": "192.0.2.21", "10.0.0.1": "192.0.2.11"})
    job = jobs("aws")["mixed-led-ucc-allreduce-no-cpu-copies"]
    ours = planned(job)
    assert [rank.host for rank in ours.ranks] == [rank.host for rank in theirs.ranks]
    for mine, rank in zip(ours.ranks, theirs.ranks, strict=True):
        assert rank.env.items() <= mine.env.items()
    assert theirs.mca.items() <= ours.mca.items()
    assert job.launcher is not None
    assert (job.launcher.host, job.launcher.ranks) == ("192.0.2.9", 0)


def test_cpus_are_started_from_a_node_without_ranks() -> None:
    job = jobs("aws")["cpu-ob1-tcp-allreduce-default"]
    theirs = typed(f"{DDP_MASTER} p", {"10.0.0.2": "192.0.2.31", "10.0.0.1": "192.0.2.32"})
    assert [rank.host for rank in planned(job).ranks] == [rank.host for rank in theirs.ranks]
    assert job.launcher is not None
    assert job.launch_node.hardware.name == "launcher"


def test_the_known_crash_of_aws_carries_its_cure() -> None:
    (known,) = jobs("aws")["mixed-ucc-allreduce-gpu-default"].demand.expectations
    assert known.kinds == (Kind.CRASH,)
    assert known.signatures == ("SIGSEGV@libuct_rocm.so!uct_rocm_copy_ep_put_short",)
    cured = jobs("aws")["mixed-ucc-allreduce-gpu-no-cpu-copies"]
    assert cured.demand.expectations == ()
    assert known.remedy["env"].items() <= planned(cured).ranks[0].env.items()


def test_roce_names_its_hca_to_ucx_and_asks_for_proof() -> None:
    job = jobs("roce")["two-200-ucx-rc-allreduce"]
    assert planned(job).ranks[0].env["UCX_NET_DEVICES"] == "mlx5_bond_0:1"
    assert planned(jobs("roce")["two-200-ucx-tcp-allreduce"]).ranks[0].env["UCX_NET_DEVICES"] == "bond0"
    assert job.demand.rdma


def test_a_lumi_cell_has_the_documented_tokens() -> None:
    """Masks, interfaces and the log of NCCL are those of the course. Master and image are left out."""
    argv = jobs("lumi")["contained-rccl-ofi-ddp_train-default"].command.argv
    cut = [
        word
        for word in argv[: argv.index("/tmp/hetgpu/programs/ddp_train.py") - 1]
        if not word.startswith(("MASTER_", "--mpi", "--input"))
    ]
    masks = "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"
    assert [word for word in cut if not word.endswith(".sif")] == [
        *("srun", "--kill-on-bad-exit=1", "--nodes=2", "--ntasks=16", "--ntasks-per-node=8"),
        *(f"--cpu-bind=mask_cpu:{masks}", "--gpus-per-node=8", "singularity", "exec", "--rocm"),
        *("--bind", "/var/spool/slurmd,/opt/cray,/usr/lib64/libcxi.so.1,/tmp/hetgpu", "env"),
        *("NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET", "NCCL_NET=AWS Libfabric", "NCCL_SOCKET_IFNAME=hsn"),
        "OMP_NUM_THREADS=1",
    ]


def test_lumis_series_doubles_the_nodes_to_64() -> None:
    for kind, workload in (("weak", "ddp-each"), ("strong", "ddp-all")):
        series = [jobs("lumi")[f"torch-{kind}-{2**power}x8-rccl-ofi-{workload}-default"] for power in range(7)]
        for nodes, job in zip((1, 2, 4, 8, 16, 32, 64), series, strict=True):
            argv = job.command.argv
            assert {f"--nodes={nodes}", f"--ntasks={8 * nodes}", "--ntasks-per-node=8", "--gpus-per-node=8"} <= {*argv}
            assert argv[argv.index("--scaling") + 1] == kind
            assert job.demand.ranks == 8 * nodes
    (least,) = next(s for s in suite("lumi").scenarios if s.id.startswith("torch-weak-16x8-")).references
    assert (least.efficiency, least.cell) == (0.8, "torch-weak-1x8-rccl-ofi-ddp-each-default")
