"""A rank of torch.distributed: its number, its process group, and its report.

Each launcher sets the rank of a process in variables of its own. Some platforms set RANK and WORLD_SIZE per pod
(Kubeflow's training operator, and RunAI with it), and count pods, not processes. So these two are used only if torchrun
has set them, or no other launcher is found:

| launcher | its mark | rank, size, rank on the node |
|---|---|---|
| torchrun | `TORCHELASTIC_RUN_ID` | `RANK` `WORLD_SIZE` `LOCAL_RANK` |
| Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_RANK` `..._SIZE` `..._LOCAL_RANK` |
| MPICH (Hydra) | `PMI_RANK` | `PMI_RANK` `PMI_SIZE` `MPI_LOCALRANKID` |
| srun | `SLURM_STEP_ID` | `SLURM_PROCID` `SLURM_STEP_NUM_TASKS` `SLURM_LOCALID` |
| any other | `LOCAL_RANK` | `RANK` `WORLD_SIZE` `LOCAL_RANK` |
"""

from __future__ import annotations

import datetime
import faulthandler
import gc
import os
import platform
import sys
import warnings
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Set, Tuple

import cores
import torch
import torch.distributed as dist
from records import emit, now

LAUNCHERS = (
    ("torchrun", "TORCHELASTIC_RUN_ID", ("RANK", "WORLD_SIZE", "LOCAL_RANK")),
    (
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ),
    ("MPICH", "PMI_RANK", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")),
    ("srun", "SLURM_STEP_ID", ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")),
    ("the environment", "LOCAL_RANK", ("RANK", "WORLD_SIZE", "LOCAL_RANK")),
)
LIMIT = datetime.timedelta(minutes=10)  # the cell's own time limit is the one that counts
ESTABLISHED = "01"
TCP_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")


class RankInfo(NamedTuple):
    """The rank of a process, the size of its world, its rank on the node, and the launcher."""

    rank: int
    size: int
    local: int
    by: str


class ProcessGroup(NamedTuple):
    """The joined group: the rank in it, the device of its tensors, the backend."""

    info: RankInfo
    device: torch.device
    backend: str

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self.info.rank

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.info.size

    @property
    def exchange_device(self) -> torch.device:
        """The device for exchanging measurements: Gloo gathers host memory only, NCCL only a GPU's."""
        return self.device if self.backend == "nccl" else torch.device("cpu")

    def synchronize(self) -> None:
        """Wait until all work on an accelerator is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def meet(self) -> None:
        """Wait for all ranks, with no work left on an accelerator."""
        self.synchronize()
        self.barrier()
        self.synchronize()

    def barrier(self) -> None:
        """Wait for all ranks; NCCL needs the device for that."""
        if self.backend == "nccl":
            dist.barrier(device_ids=[self.device.index])
        else:
            dist.barrier()


def find_rank(environment: Dict[str, str]) -> RankInfo:
    """Return the rank that the launcher set. Exit if there is none, or it is invalid."""
    for launcher, sign, names in LAUNCHERS:
        if sign not in environment:
            continue
        values = {name: environment.get(name, "nothing") for name in names}
        try:
            rank, size, local = (int(values[name]) for name in names)
        except ValueError:
            sys.exit(f"{launcher} started this process, but does not set its rank: {values}")
        if not 0 <= rank < size or local < 0:
            sys.exit(f"{launcher} started this process as one that there cannot be: {values}")
        return RankInfo(rank, size, local, launcher)
    pods = {name: environment[name] for name in ("RANK", "WORLD_SIZE") if name in environment}
    hint = f" ({pods} without LOCAL_RANK may count pods, not processes)" if pods else ""
    sys.exit(f"no launcher sets the rank of this process{hint}: start it with torchrun, mpirun or srun")


def join(backend: str, memory: str) -> ProcessGroup:
    """Report this rank, then join the group of all ranks. Raises RuntimeError if this build lacks the backend."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    mine = find_rank(dict(os.environ))
    cores.prepare()
    if backend != "mpi":
        faulthandler.enable()
    warn_of_pods(mine)
    built = dist.is_backend_available(backend)
    device = device_of(mine, backend, memory) if built else torch.device("cpu")
    emit_hello(mine)
    if not built:
        # Report it, and let torch raise its own error below.
        how = f"torch.distributed.is_backend_available({backend!r}) is False in torch {torch.__version__}"
        emit(t="lacks", rank=mine.rank, what=f"backend {backend}", how=how)
    set_rendezvous(mine)
    dist.init_process_group(backend, init_method="env://", timeout=LIMIT, **nccl_options(backend, device))
    # An MPI installs its own handler only if there is none.
    faulthandler.enable()
    if (dist.get_rank(), dist.get_world_size()) != (mine.rank, mine.size):
        group = f"rank {dist.get_rank()} of {dist.get_world_size()}"
        sys.exit(f"{mine.by} set rank {mine.rank} of {mine.size}, the group has {group}")
    world = ProcessGroup(mine, device, backend)
    # A crash of the first would take the greetings of the others with it.
    world.barrier()
    emit_carrier(world)
    return world


def leave(world: ProcessGroup) -> None:
    """Report the use of the device and the end of this rank."""
    if world.device.type == "cuda":
        found = torch.cuda.get_device_properties(world.device)
        emit(
            t="device",
            rank=world.rank,
            index=world.device.index,
            name=found.name,
            arch=arch_name(found),
            memory=found.total_memory,
            peak=torch.cuda.max_memory_allocated(world.device),
        )
    emit(t="done", rank=world.rank, at=now())
    world.barrier()
    # A DistributedDataParallel is part of a cycle and holds the group. If both outlive the interpreter, Gloo's threads
    # wait for Python's lock in vain, and a rank dies of SIGABRT: 10 of 200 with PyTorch 2.13, none with this line.
    gc.collect()
    dist.destroy_process_group()


def device_of(mine: RankInfo, backend: str, memory: str) -> torch.device:
    """Return the accelerator of this rank; ranks of a node take its devices in turn. NCCL moves device memory only."""
    if memory != "device" and backend != "nccl":
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if not count:
        built = "ROCm" if torch.version.hip else f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
        sys.exit(f"no GPU is usable for device memory: PyTorch {torch.__version__} is built for {built} and sees none")
    device = torch.device("cuda", mine.local % count)
    torch.cuda.set_device(device)
    return device


def nccl_options(backend: str, device: torch.device) -> Dict[str, Any]:
    """Return the device of the NCCL communicator. Without it, the first collective guesses."""
    return {"device_id": device} if backend == "nccl" and device.type == "cuda" else {}


def arch_name(properties: Any) -> str:
    """Return `sm_90`, or `gfx1011` without the features after it."""
    if torch.version.hip:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def warn_of_pods(mine: RankInfo) -> None:
    """Print one warning if RANK and WORLD_SIZE of the environment are not those of the processes."""
    outer = tuple(os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    if mine.rank == 0 and all(outer) and outer != (str(mine.rank), str(mine.size)):
        print(
            f"hetgpu: RANK={outer[0]} and WORLD_SIZE={outer[1]} were set outside and may count pods; "
            f"{mine.by} set rank {mine.rank} of {mine.size}",
            file=sys.stderr,
        )


def set_rendezvous(mine: RankInfo) -> None:
    """Set the variables that torch reads; torchrun has set them itself."""
    if mine.by == "torchrun":
        return
    os.environ.update(RANK=str(mine.rank), WORLD_SIZE=str(mine.size), LOCAL_RANK=str(mine.local))
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing and mine.size > 1:
        sys.exit(f"{mine.by} started this process without {' and '.join(missing)}: where rank 0 listens is not known")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "0")


def emit_hello(mine: RankInfo) -> None:
    """Report this rank, its node of the job, and the loaded libraries."""
    emit(
        t="hello",
        rank=mine.rank,
        size=mine.size,
        host=platform.node(),
        pid=os.getpid(),
        library=f"torch {torch.__version__}",
        libmpi=mapped("libmpi.so") or mapped("libmpi"),
        python=platform.python_version(),
        node=int(os.environ.get("HETGPU_NODE", "-1")),
        versions=versions(),
        at=now(),
    )


def versions() -> Dict[str, str]:
    """Return the versions of this build of torch, by the names that conditions use."""
    found = {}
    if torch.version.hip:
        found["rocm"] = torch.version.hip.partition("-")[0]
    elif torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if dist.is_nccl_available():
        with_dots = ".".join(map(str, torch.cuda.nccl.version()))
        found["rccl" if torch.version.hip else "nccl"] = with_dots
    return found


def mapped(name: str) -> str:
    """Return the real path of a loaded library of that name; "" if there is none."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and Path(path[0]).name.startswith(name):
            return os.path.realpath(path[0])
    return ""


def emit_carrier(world: ProcessGroup) -> None:
    """Report Gloo's transport. Gloo prints nothing, but the kernel lists its connections to other ranks."""
    if world.backend != "gloo" or world.ranks == 1:
        return
    if has_peer_connection(int(os.environ["MASTER_PORT"])):
        emit(t="carried", rank=world.rank, by="gloo/tcp")


def has_peer_connection(store: int) -> bool:
    """Return whether this process has a TCP connection other than that to the store, which listens on that port."""
    mine = own_sockets()
    for table in TCP_TABLES:
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            ports = {int(fields[place].rpartition(":")[2], 16) for place in (1, 2)}
            if fields[3] == ESTABLISHED and fields[9] in mine and store not in ports:
                return True
    return False


def own_sockets() -> Set[str]:
    """Return the inodes of this process's sockets."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        target = read_link(descriptor)
        if target and target.startswith("socket:["):
            found.add(target[len("socket:[") : -1])
    return found


def read_link(path: Path) -> Optional[str]:
    """Return the target of a link; None if it was just removed."""
    try:
        return os.readlink(path)  # noqa: PTH115 - Path.readlink is from Python 3.9
    except OSError:
        return None


def parse_dtype(text: str) -> Tuple[str, torch.dtype]:
    """Return the name of a type and torch's type. Exit if torch lacks it."""
    found = getattr(torch, text, None)
    if not isinstance(found, torch.dtype):
        sys.exit(f"torch has no type {text}")
    return text, found
