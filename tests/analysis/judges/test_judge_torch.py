"""Runs of torch.distributed: their communicator, and features missing from their build."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_hetgpu.analysis.judge import judge
from pytest_hetgpu.analysis.judges.base import FinishedRun, Precedence
from pytest_hetgpu.analysis.judges.communicator import CommunicatorJudge
from pytest_hetgpu.analysis.judges.devices import DevicesJudge
from pytest_hetgpu.analysis.judges.transport import TransportJudge
from pytest_hetgpu.analysis.rank_outcomes import rank_outcomes
from pytest_hetgpu.model.job import Accelerator, Hardware, Node, Stack
from pytest_hetgpu.model.records import Device
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import STACK, case, hello, job, signature

TORCH = Stack("torch", "torch", "2.13.0", "/opt/torch", "/opt/torch/bin/torchrun", "/opt/torch/bin/python", torch=True)


def by_torch(
    library: str = "torch 2.13.0+cpu", *, stack: Stack = STACK, backend: str = "gloo", libmpi: str = ""
) -> FinishedRun:
    hellos = {rank: hello(rank, library=library, libmpi=libmpi) for rank in range(2)}
    return case(
        {"backend": backend, "stack": stack, "transports": ("gloo/tcp",)}, hellos=hellos, transports=("gloo/tcp",)
    )


def whys(found: FinishedRun) -> list[tuple[Kind, str]]:
    return [(rated.finding.kind, rated.finding.why) for rated in CommunicatorJudge().evaluate(found)]


def test_any_release_of_torch_is_right_on_the_stack_of_an_mpi() -> None:
    assert whys(by_torch()) == []
    assert judge(by_torch().job, by_torch().result, by_torch().evidence).kind is Kind.PASSED


def test_the_stack_torch_asks_for_its_release() -> None:
    assert whys(by_torch(stack=TORCH)) == []
    other = whys(by_torch("torch 2.5.1", stack=TORCH))
    assert other == [
        (Kind.LAUNCH_FAILURE, "rank 0 loaded torch 2.5.1 (file unknown), asked for was torch 2.13.0 (stack torch)")
    ]


def test_ranks_that_call_mpi_instead_are_told_apart() -> None:
    (found,) = whys(by_torch("Open MPI v5.0.11, package: x"))
    assert found[0] is Kind.LAUNCH_FAILURE


def test_backend_mpi_must_have_loaded_the_libmpi_of_the_stack() -> None:
    assert whys(by_torch(backend="mpi", libmpi="/opt/stack/lib/libmpi.so.40")) == []
    (found,) = whys(by_torch(backend="mpi", libmpi="/usr/lib/libmpi.so.40"))
    assert "not under /opt/stack" in found[1]


def lacking(**changes: Any) -> FinishedRun:
    failure = signature(Kind.ERROR, "not-built@MPI")
    run = {"returncode": 1}
    hellos = {rank: hello(rank, library="torch 2.13.0", libmpi="") for rank in range(2)}
    told = {"hellos": hellos, "lacks": ("backend mpi: it is False",), "signatures": (failure,)}
    return case({"backend": "mpi"}, run, **told, **changes)


def test_a_backend_that_the_build_lacks_is_an_unavailable_transport_and_says_how_it_knows() -> None:
    (found,) = TransportJudge().evaluate(lacking())
    assert (found.precedence, found.finding.kind) == (Precedence.OVERRIDING, Kind.TRANSPORT_UNAVAILABLE)
    assert found.finding.why == "this build has no backend mpi: it is False"
    outcome = judge(lacking().job, lacking().result, lacking().evidence)
    assert outcome.kind is Kind.TRANSPORT_UNAVAILABLE
    assert outcome.signature
    assert outcome.signature.key == "not-built@MPI"


def on_gpus(*devices: Device, **seen: Any) -> FinishedRun:
    facts = {"memory": "device"}
    found = case({"backend": "nccl", "facts": facts, "transports": ("nccl/*",)}, devices=devices, **seen)
    gpu = Node(0, Hardware("g4dn", Accelerator("cuda", "sm_75")), "localhost", 1)
    return replace(found, job=replace(found.job, nodes=(gpu, replace(gpu, index=1))))


def test_ranks_of_device_memory_show_the_device_they_used() -> None:
    good = [Device(rank, 0, "Tesla T4", "sm_75", 16 << 30, 1 << 20) for rank in range(2)]
    assert list(DevicesJudge().evaluate(on_gpus(*good))) == []
    (other,) = DevicesJudge().evaluate(on_gpus(good[0], replace(good[1], arch="sm_90", name="H100")))
    assert other.finding.kind is Kind.GPU_ARCH_MISMATCH
    assert other.finding.why == "rank 1 ran on sm_90 (H100), but hardware g4dn is sm_75"
    idle = [rated.finding for rated in DevicesJudge().evaluate(on_gpus(replace(good[0], peak=0)))]
    assert [finding.why for finding in idle] == [
        "nothing shows that rank 0 used device memory",
        "nothing shows that rank 1 used device memory",
    ]


def test_devices_are_among_the_facts_of_a_cell() -> None:
    found = on_gpus(Device(0, 0, "Tesla T4", "sm_75", 16 << 30, 1 << 30))
    facts = judge(found.job, found.result, found.evidence).facts
    assert facts["devices"] == "rank 0: Tesla T4 (sm_75), 1.00 of 16.0 GiB at most"


def test_ranks_belong_to_the_node_that_they_say() -> None:
    amd = Node(0, Hardware("g4ad", Accelerator("rocm")), "a", 1, "node0")
    nvidia = Node(1, Hardware("g4dn", Accelerator("cuda")), "b", 1, "node1")
    both = replace(job(backend="gloo"), nodes=(amd, nvidia))
    hellos = {0: hello(0, library="torch 2.13.0", node=1), 1: hello(1, library="torch 2.13.0", node=0)}
    broken = case({"backend": "gloo"}, {"returncode": 1}, hellos=hellos)
    found = rank_outcomes(replace(broken, job=both), ())
    assert [(one.node, one.platform) for one in found] == [("node1", "cuda"), ("node0", "rocm")]
