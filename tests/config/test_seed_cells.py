"""Cells of matrices/aws.yaml and the commands of the documents that they repeat (docs/reference/seeds.md)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.config.test_matrices import jobs
from tests.extensions.launchers.mpirun_words import Meaning, meaning
from tests.extensions.launchers.test_mpirun_documents import CASES

GPUS = {"10.0.0.1": "192.0.2.11", "10.0.0.2": "192.0.2.21"}
CPUS = {"10.0.0.2": "192.0.2.31", "10.0.0.1": "192.0.2.32"}
LAUNCHER = "192.0.2.9"
# What shows which transport carried the data, and one thread a rank: not typed by hand.
OURS = {"coll", "ompi_display_comm", "OMP_NUM_THREADS", "UCX_LOG_LEVEL", "UCC_LOG_LEVEL"}
# UCX may use devices that are no RDMA.
DEVICES = {"opal_common_ucx_devices"}
# The document leaves the choice of the transport, and of its interface, to UCX.
CHOSEN = {*DEVICES, "opal_common_ucx_tls", "UCX_TLS", "UCX_NET_DEVICES", "MASTER_ADDR", "MASTER_PORT"}


class Case(NamedTuple):
    """A command of a document, its hosts, a part of our program's arguments, and the settings that we add."""

    command: str
    hosts: Mapping[str, str]
    program: str
    added: frozenset[str] | set[str] = frozenset()


CELLS = {
    "mixed-torch-ucc-host-ddp-10-no-blaslt": Case("mixed: full training", GPUS, "--epochs 10", DEVICES),
    "mixed-torch-ucc-host-send_recv-torch-no-blaslt": Case("mixed: send and receive", GPUS, "send_recv", DEVICES),
    "mixed-torch-ob1-tcp-send_recv-torch-default": Case("mixed: without ucx", GPUS, "send_recv"),
    "mixed-led-auto-ddp-1000-default": Case("led: on gpus", GPUS, "--epochs 1000"),
    "mixed-led-ucc-ddp-1000-no-cpu-copies": Case("led: mpi backend", GPUS, "--epochs 1000", CHOSEN),
    "cpu-torch-gloo-ddp-cpu-1000-default": Case("led: on cpus", CPUS, "--epochs 1000", {"GLOO_SOCKET_IFNAME"}),
}


def settings(found: Meaning, names: Mapping[str, str]) -> dict[str, str]:
    """The parameters and variables of a command, with the address of the master; of its port the name only."""
    ranks = [dict(rank.env) for rank in found.ranks]
    assert all(env == ranks[0] for env in ranks)
    merged = {**found.mca, **ranks[0]}
    if "MASTER_ADDR" in merged:
        merged |= {"MASTER_ADDR": names[merged["MASTER_ADDR"]], "MASTER_PORT": ""}
    return merged


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_is_the_command_of_the_document(cell: str) -> None:
    case, job = CELLS[cell], jobs("aws")[cell]
    typed, ours = meaning(shlex.split(CASES[case.command].command)[1:]), meaning(job.command.argv[1:])
    names = {node.name: node.host for node in job.nodes}
    assert [names[rank.host] for rank in ours.ranks] == [case.hosts[rank.host] for rank in typed.ranks]
    wanted, found = settings(typed, case.hosts), settings(ours, names)
    assert case.added <= found.keys()
    assert {name: value for name, value in found.items() if name not in OURS | case.added} == wanted
    assert case.program in " ".join(ours.ranks[0].program)


def test_the_second_document_starts_jobs_from_a_node_without_ranks() -> None:
    for cell in ("mixed-led-auto-ddp-1000-default", "cpu-torch-gloo-ddp-cpu-1000-default"):
        launcher = jobs("aws")[cell].launcher
        assert launcher is not None
        assert (launcher.host, launcher.ranks) == (LAUNCHER, 0)


@pytest.mark.parametrize(
    ("cell", "issue"),
    [
        ("mixed-torch-nccl-ddp-10-nccl-torchrun", "https://github.com/ROCm/rccl/issues/1220"),
        ("mixed-torch-auto-ddp-10-ucc-torchrun", "https://github.com/openucx/ucx/discussions/9985"),
    ],
)
def test_the_attempts_that_failed_are_started_by_torchrun(cell: str, issue: str) -> None:
    found = jobs("aws")[cell]
    assert "torch.distributed.run" in found.command.argv
    assert [one.issue for one in found.demand.expectations] == [issue]


def test_the_containers_of_both_vendors_have_the_options_of_the_document() -> None:
    rocm, cuda = (node.hardware.container for node in jobs("aws")["mixed-ucx-tcp-allreduce-default"].nodes)
    for one in (rocm, cuda):
        assert (one.security, one.groups, one.cap_add) == (("seccomp=unconfined",), ("video",), ("SYS_PTRACE",))
        assert (one.ipc, one.shm) == ("host", 8 << 30)
    assert (rocm.devices, cuda.gpus) == (("/dev/kfd", "/dev/dri"), "all")
