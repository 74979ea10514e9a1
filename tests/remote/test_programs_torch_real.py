"""The programs of torch.distributed under a real torchrun, over Gloo."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.records import RecordReader, Records
from pytest_hetgpu.execution.trace import trace_of
from pytest_hetgpu.model.records import MessagePoint
from tests.conftest import stack_candidates
from tests.remote.mpi_runs import PROGRAMS

pytestmark = pytest.mark.real

Lacking = Callable[[str, str], None]
LIMIT = 150.0  # seconds; importing torch takes seconds a process
EVERYTHING = """
import torch
from torch_operations import OPERATIONS
from torch_sweep import wrong_elements
from torch_world import join, leave

world = join("gloo", "host")
checks = []
for kind in OPERATIONS.values():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64):
        operation = kind(world, 4 * 66, dtype)
        operation.run_verified()
        wrong = sum(wrong.count for wrong in wrong_elements([operation]))
        operation.data.view(torch.uint8)[:1] ^= 1
        if operation.result.numel():
            operation.result.view(torch.uint8)[-1] ^= 1
        missed = sum(int((got != wanted).sum()) for got, wanted in ((operation.result, operation.wanted),)) == 0
        checks.append((kind.name, str(dtype), wrong, missed and operation.result.numel() > 0))
if world.rank == 1:
    print("CHECKS", __import__("json").dumps(checks), flush=True)
leave(world)
"""
WRONG = """
import sys
import torch_operations, torch_sweep

class Spoilt(torch_operations.TorchAllreduce):
    def step(self):
        super().step()
        if self.rank == 1:
            self.data[3] += 1

torch_sweep.OPERATIONS["allreduce"] = Spoilt
sys.argv[1:] = ["--operation", "allreduce", "--backend", "gloo", "--sizes", "64", "--iterations", "1"]
torch_sweep.main()
"""
NOT_A_NUMBER = """
import sys
import ddp_train, torch_training

made = torch_training.make_data
def spoilt(*arguments):
    found = made(*arguments)
    found.targets[5] = float("nan")
    return found

ddp_train.make_data = spoilt
sys.argv[1:] = ["--backend", "gloo", "--epochs", "2", "--samples", "256"]
ddp_train.main()
"""
HELD = """
import torch.distributed as dist
from torch_world import join, leave

class Held:
    def __init__(self):
        self.itself = self
    def __del__(self):
        print("LET GO", flush=True)

def destroyed():
    print("DESTROYED", flush=True)
    destroy()

world = join("gloo", "host")
destroy, dist.destroy_process_group = dist.destroy_process_group, destroyed
Held()
leave(world)
"""
SHARES = """
import json
from torch_profile import communication_share

def event(name, start, duration, category="cpu_op"):
    return {"ph": "X", "name": name, "ts": start, "dur": duration, "cat": category}

steps = [event("step", 100, 50), event("step", 150, 50)]
host = [event("gloo:all_reduce", 90, 20), event("gloo:all_reduce", 105, 15), event("gloo:barrier", 190, 100)]
kernels = [event("gemm", 100, 120, "kernel"), event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 150, 50, "kernel")]
print(json.dumps([
    communication_share([*steps, *host, {"ph": "M"}]),
    communication_share([*steps, *host, *kernels]),
    communication_share(host),
]))
"""
WHO = """
import json, sys
from torch_world import find_rank
for environment in json.loads(sys.argv[1]):
    try:
        print(json.dumps(list(find_rank(environment))))
    except SystemExit as error:
        print(json.dumps(str(error)))
"""


@dataclass(frozen=True)
class Ran:
    returncode: int
    text: str
    records: Records


WRONG_GRADIENT = """
import sys
import torch
import PROGRAM
from torch_world import find_rank
import os

step, steps = torch.optim.SGD.step, []
def spoilt(self, *arguments):
    steps.append(1)
    # FSDP trains 2 epochs of 4 steps alone before.
    if len(steps) == (6 if "PROGRAM" == "ddp_train" else 14) and find_rank(dict(os.environ)).rank == RANK:
        gradient = self.param_groups[0]["params"][0].grad
        getattr(gradient, "_local_tensor", gradient).view(-1)[0] += 1e-3
    return step(self, *arguments)

torch.optim.SGD.step = spoilt
sys.argv[1:] = ["--backend", "gloo", "--epochs", "2", "--samples", "512", "--batch", "64"]
PROGRAM.main()
"""


@pytest.fixture(scope="session")
def torch_python(lacking: Lacking) -> str:
    """The interpreter of a stack that has PyTorch."""
    for name in ("openmpi-5-torch", "torch"):
        for prefix in stack_candidates(name):
            if (prefix / "bin" / "python").exists():
                return str(prefix / "bin" / "python")
    lacking("torch", "there is no stack with PyTorch: python3 bootstrap.py stack openmpi-5-torch")
    return ""


Torchrun = Callable[..., Ran]


@pytest.fixture
def torchrun(torch_python: str, tmp_path: Path) -> Torchrun:
    """Run a program, or the source of one that lies beside ours, on so many ranks."""

    def run(program: str, *args: str, ranks: int = 2, **variables: str) -> Ran:
        path = PROGRAMS / program
        if "\n" in program:
            path = tmp_path / "program.py"
            path.write_text(f"import sys\nsys.path.insert(0, {str(PROGRAMS)!r})\n{program}")
        context = ("-np", str(ranks), "-H", "localhost", torch_python, "-m", "torch.distributed.run")
        agent = ("--standalone", "--nproc-per-node", str(ranks), "--max-restarts", "0", "--tee", "3", str(path), *args)
        env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **variables}
        done = subprocess.run(
            (torch_python, str(PROGRAMS / "torchruns.py"), *context, *agent),
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )
        reader = RecordReader()
        for line in done.stdout.splitlines():
            reader.feed(line)
        return Ran(done.returncode, done.stdout.decode(errors="replace"), reader.finish())

    return run


def test_every_operation_is_right_for_every_type_and_a_changed_element_shows(torchrun: Torchrun) -> None:
    ran = torchrun(EVERYTHING, ranks=4)
    assert ran.returncode == 0, ran.text[-3000:]
    found = re.search(r"CHECKS (.*)", ran.text)
    assert found
    checks = json.loads(found[1])
    assert len(checks) == 11 * 7
    assert [check for check in checks if check[2] or check[3]] == []
    assert ran.records.carried == {"gloo/tcp"}
    assert ran.records.done == {0, 1, 2, 3}


def test_a_wrong_element_is_told_with_its_rank_and_place(torchrun: Torchrun) -> None:
    ran = torchrun(WRONG)
    assert ran.records.checks[0] == {MessagePoint(64, "float32", "in"): 0}
    assert ran.records.checks[1] == {MessagePoint(64, "float32", "in"): 1}
    assert re.fullmatch(
        r"rank 1: 1 wrong element at 64 B float32 in place, first at \[3\] of 16 elements: "
        r"expected 15.0, got 16.0 \(repeat 0, iteration 0\)",
        ran.records.wrong[0],
    )


STALE = """
import sys
import torch_operations, torch_sweep

class Stale(torch_operations.KIND):
    steps = 0
    def step(self):
        Stale.steps += 1
        if not (Stale.steps == 11 and self.rank == 1):
            return super().step()
        kept = self.result.clone()
        super().step()
        self.result.copy_(kept)

torch_sweep.OPERATIONS["NAME"] = Stale
sys.argv[1:] = ["--operation", "NAME", "--backend", "gloo", "--sizes", "64", "--dtypes", "DTYPE"]
sys.argv += ["--iterations", "3", "--warmup", "1", "--repeats", "2"]
torch_sweep.main()
"""


@pytest.mark.parametrize(
    ("name", "kind", "dtype"),
    [
        ("allreduce", "TorchAllreduce", "int64"),
        ("alltoall", "TorchAlltoall", "uint8"),
        ("broadcast", "TorchBroadcast", "float16"),
    ],
)
def test_one_result_that_is_not_written_is_caught_in_its_repeat(
    torchrun: Torchrun, name: str, kind: str, dtype: str
) -> None:
    """Three steps warm up three results, and three are timed; then the second repeat begins. Step 11 has no effect."""
    ran = torchrun(STALE.replace("KIND", kind).replace("NAME", name).replace("DTYPE", dtype))
    place = "in" if name == "allreduce" else ""
    (point,) = ran.records.checks[0]
    assert (point.size, point.dtype, point.place) == (64, dtype, place)
    assert ran.records.checks[0][point] == 0
    assert ran.records.checks[1][point] == 64 // {"int64": 8, "uint8": 1, "float16": 2}[dtype]
    assert ran.records.wrong[0].endswith("(repeat 1, iteration 1)")


@pytest.mark.parametrize(("program", "rank"), [("ddp_train", 1), ("fsdp_train", 0)])
def test_one_wrong_gradient_of_one_step_shows_in_its_epoch(torchrun: Torchrun, program: str, rank: int) -> None:
    ran = torchrun(WRONG_GRADIENT.replace("PROGRAM", program).replace("RANK", str(rank)))
    assert ran.returncode == 0, ran.text[-3000:]
    assert any(
        text.startswith(f"rank {rank}: ") and " of the parameters: " in text and "(repeat 1, " in text
        for text in ran.records.wrong
    ), ran.records.wrong


def test_training_on_what_is_no_number_is_a_wrong_result(torchrun: Torchrun) -> None:
    ran = torchrun(NOT_A_NUMBER)
    assert ran.returncode == 0, ran.text[-3000:]
    assert all(sum(points.values()) for points in ran.records.checks.values())
    assert any("of the loss: expected at most nan, got nan" in sentence for sentence in ran.records.wrong)


@pytest.mark.parametrize(("scaling", "steps"), [("weak", 8), ("strong", 8)])
def test_a_series_gives_the_problem_of_one_rank_or_of_all(torchrun: Torchrun, scaling: str, steps: int) -> None:
    """Weak: 512 samples and a batch of 64 for each of two ranks. Strong: the same for both together."""
    arguments = ("--backend", "gloo", "--epochs", "4", "--samples", "512", "--batch", "64", "--scaling", scaling)
    ran = torchrun("ddp_train.py", *arguments)
    assert ran.returncode == 0, ran.text[-3000:]
    assert [(row.iterations, row.repeat) for row in ran.records.rows] == [(steps, 0), (steps, 1), (steps, 2)]
    (rate,) = (one for one in ran.records.figures if one.metric == "samples")
    whole = 64 * (2 if scaling == "weak" else 1)
    assert rate.samples == pytest.approx([whole / row.seconds for row in ran.records.rows])


@pytest.mark.parametrize("program", ["ddp_train.py", "fsdp_train.py"])
def test_a_profile_is_a_trace_of_chrome_with_the_share_of_communication(torchrun: Torchrun, program: str) -> None:
    ran = torchrun(program, "--backend", "gloo", "--samples", "256", "--profile")
    assert ran.returncode == 0, ran.text[-3000:]
    trace = json.loads(trace_of(line.encode() for line in ran.text.splitlines()))
    names = [event["name"] for event in trace["traceEvents"] if event.get("ph") == "X"]
    assert names.count("step") == 5
    assert any(name.startswith("gloo:") for name in names)
    got, parts = ran.records.trace
    assert got == parts > 0
    (share,) = (one.value for one in ran.records.figures if one.metric == "communication")
    assert 0 < share <= 1


def test_the_share_of_communication_counts_what_overlaps_once(torch_python: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r})\n{SHARES}"
    done = subprocess.run([torch_python, "-c", code], capture_output=True, text=True, check=True)
    # 20 + 10 of 100 us on the host; a kernel of 50 in the 120 us until the last one ends; no steps.
    assert json.loads(done.stdout) == [0.3, pytest.approx(50 / 120), 0.0]


def test_what_holds_the_group_is_let_go_before_the_group_ends(torchrun: Torchrun) -> None:
    ran = torchrun(HELD, ranks=1)
    assert re.findall("LET GO|DESTROYED", ran.text) == ["LET GO", "DESTROYED"]


@pytest.mark.parametrize("backend", ["nccl", "mpi", "ucc"])
def test_a_backend_that_is_not_built_is_named_with_how_that_is_known(torchrun: Torchrun, backend: str) -> None:
    ran = torchrun("torch_sweep.py", "--operation", "barrier", "--backend", backend, ranks=1)
    assert ran.returncode != 0
    (found,) = ran.records.lacks
    assert found.startswith(
        f"backend {backend}: torch.distributed.is_backend_available('{backend}') is False in torch 2"
    )
    assert re.search(r"Distributed package doesn't have \w+ built in|Unknown c10d backend type UCC", ran.text)


def test_the_processes_count_not_the_pods(torch_python: str) -> None:
    pods = {"RANK": "1", "WORLD_SIZE": "2"}
    ompi = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    environments = [
        {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
        {**pods, **ompi},
        {**pods, "PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0"},
        {**pods, "SLURM_STEP_ID": "0", "SLURM_PROCID": "6", "SLURM_STEP_NUM_TASKS": "9", "SLURM_LOCALID": "2"},
        {**pods, "LOCAL_RANK": "0"},
        pods,
        {},
        {**ompi, "OMPI_COMM_WORLD_RANK": "8"},
        {**ompi, "OMPI_COMM_WORLD_SIZE": "many"},
    ]
    done = subprocess.run(
        [torch_python, "-c", f"import sys; sys.path.insert(0, {str(PROGRAMS)!r})\n{WHO}", json.dumps(environments)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found[:5] == [
        [3, 4, 1, "torchrun"],
        [5, 8, 1, "Open MPI"],
        [2, 3, 0, "MPICH"],
        [6, 9, 2, "srun"],
        [1, 2, 0, "the environment"],
    ]
    assert "may count pods, not processes" in found[5]
    assert found[6] == "no launcher sets the rank of this process: start it with torchrun, mpirun or srun"
    assert "as one that there cannot be" in found[7]
    assert "does not set its rank" in found[8]
