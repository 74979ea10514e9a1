"""What a batch system is asked for to have nodes, and how ranks are bound and wrapped on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from pytest_hetgpu.model.job import Hardware

# LUMI-G: the cores next to each of a node's eight GCDs; the first core of each eight is the system's own.
# https://docs.lumi-supercomputer.eu/runjobs/scheduled-jobs/distribution-binding/
LUMI_G = ("49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47")
BINDINGS = {"lumi-g": LUMI_G}


@dataclass(frozen=True, slots=True)
class Batch:
    """One kind of node as Slurm is asked for it: empty fields leave the choice to the site.

    `time` is the allocation's limit as `--time` takes it, `queue` the seconds that it may wait to start. `mpi` is
    srun's plugin, `binding` the CPUs of each rank of a node by its local rank (`1-7`), `bind` srun's own word instead
    (`cores`). `container` is apptainer or pyxis for the kind's `image`, `binds` what it sees of its host. `group` is
    the component that a node is of (None: the job has but one), `relative` its place there. `ranks` are those of a node
    that is shared with others, and 0 for one that is not: of the first only as many CPUs are given as are asked for.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    gres: str = ""
    gpus: str = ""
    constraint: str = ""
    reservation: str = ""
    time: str = "30"
    queue: float = 3600.0
    exclusive: bool = True
    mpi: str = ""
    cpus_per_rank: int = 0
    binding: tuple[str, ...] = ()
    bind: str = ""
    container: str = "apptainer"
    binds: tuple[str, ...] = ()
    image: str = ""
    platform: str = "cpu"
    group: int | None = None
    relative: int = 0
    ranks: int = 0

    stored_as: ClassVar[str] = "batch"


def batch_of(hardware: Hardware) -> Batch | None:
    """Return what is asked for to have a kind of node; None for one that no batch system gives."""
    return hardware.settings if isinstance(hardware.settings, Batch) else None


def groups(kinds: Sequence[str]) -> list[int]:
    """Return the component of a heterogeneous job that each node is of: neighbours of one kind share theirs."""
    found: list[int] = []
    for place, kind in enumerate(kinds):
        found.append(0 if not place else found[-1] + (kind != kinds[place - 1]))
    return found


def one_step(batch: Batch) -> tuple[str, ...]:
    """srun's words for one process on a node, beside what else runs there; typed inside the allocation."""
    group = () if batch.group is None else (f"--het-group={batch.group}",)
    return ("srun", *group, "--overlap", "--nodes=1", "--ntasks=1", f"--relative={batch.relative}", "--mpi=none")


def request(batch: Batch, nodes: int) -> tuple[str, ...]:
    """Return the options of salloc for one component."""
    given = {
        "--partition": batch.partition,
        "--account": batch.account,
        "--qos": batch.qos,
        "--gres": batch.gres,
        "--gpus-per-node": batch.gpus,
        "--constraint": batch.constraint,
        "--reservation": batch.reservation,
        "--time": batch.time,
    }
    words = (f"{option}={value}" for option, value in given.items() if value)
    return (f"--nodes={nodes}", *words, *(("--exclusive",) if batch.exclusive else _share(batch)))


def _share(batch: Batch) -> tuple[str, ...]:
    """How much of a node that others use too: srun starts no more in an allocation than it was asked for."""
    each = (f"--cpus-per-task={batch.cpus_per_rank}",) if batch.cpus_per_rank else ()
    return (f"--ntasks-per-node={max(1, batch.ranks)}", *each)


def components(name: str, batches: Sequence[Batch], comment: str = "") -> tuple[str, ...]:
    """salloc's words for nodes in their order: a component each time that `group` changes."""
    tokens: list[str] = []
    for _, found in groupby(batches, key=lambda batch: batch.group):
        members = list(found)
        tokens += [":"] * bool(tokens)
        tokens += [f"--job-name={name}", *([f"--comment={comment}"] if comment else [])]
        most = max(members, key=lambda batch: batch.ranks)
        tokens += request(most, len(members))
    return tuple(tokens)


def cpus(text: str) -> set[int]:
    """Return the numbers of `1-7,9`; ValueError for what is no such list."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found |= set(range(int(first), int(last if dash else first) + 1))
    return found


def mask(text: str) -> str:
    """Convert a list of CPUs to a mask of Slurm: `1-7` is 0xfe."""
    return hex(sum(1 << cpu for cpu in cpus(text)))
