"""The request to a batch system for nodes, and how ranks are bound and wrapped on them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from pytest_hetgpu.model.job import Hardware

# LUMI-G: the cores next to each of a node's eight GCDs. The first core of each eight is reserved for the system.
# https://docs.lumi-supercomputer.eu/runjobs/scheduled-jobs/distribution-binding/
LUMI_G = ("49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47")
BINDINGS = {"lumi-g": LUMI_G}


@dataclass(frozen=True, slots=True)
class Batch:
    """One kind of node in a request to Slurm: empty fields leave the choice to the site.

    `time` is the allocation's limit in the form of `--time`, `queue` the seconds that it may wait to start. `mpi` is
    the plugin of srun. `binding` has the CPUs of each rank of a node by its local rank (`1-7`). `bind` is an option of
    srun instead (`cores`). `container` runs the kind's `image`: apptainer, singularity or pyxis; `binds` are the host
    paths that it mounts. `group` is the component of a node (None: the job has only one), `relative` its index there.
    `ranks` counts the ranks on a shared node, and is 0 for an exclusive node. A shared node gives only as many CPUs as
    requested.
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
    """Return the request for a kind of node; None for a kind without a batch system."""
    return hardware.settings if isinstance(hardware.settings, Batch) else None


def groups(kinds: Sequence[str]) -> list[int]:
    """Return the component of a heterogeneous job for each node: neighbours of one kind share a component."""
    found: list[int] = []
    for place, kind in enumerate(kinds):
        found.append(0 if not place else found[-1] + (kind != kinds[place - 1]))
    return found


def one_step(batch: Batch) -> tuple[str, ...]:
    """Return the options of srun for one process beside others on a node, typed inside the allocation."""
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
    """Return the share of a node that others use too: srun starts no more processes than the allocation requested."""
    each = (f"--cpus-per-task={batch.cpus_per_rank}",) if batch.cpus_per_rank else ()
    return (f"--ntasks-per-node={max(1, batch.ranks)}", *each)


def components(name: str, batches: Sequence[Batch], comment: str = "") -> tuple[str, ...]:
    """Return the options of salloc for nodes in their order: a new component each time that `group` changes."""
    tokens: list[str] = []
    for _, found in groupby(batches, key=lambda batch: batch.group):
        members = list(found)
        tokens += [":"] * bool(tokens)
        tokens += [f"--job-name={name}", *([f"--comment={comment}"] if comment else [])]
        most = max(members, key=lambda batch: batch.ranks)
        tokens += request(most, len(members))
    return tuple(tokens)


def cpus(text: str) -> set[int]:
    """Return the numbers of a list like `1-7,9`; raise ValueError for any other text."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found |= set(range(int(first), int(last if dash else first) + 1))
    return found


def mask(text: str) -> str:
    """Convert a list of CPUs to a mask for Slurm: `1-7` is 0xfe."""
    return hex(sum(1 << cpu for cpu in cpus(text)))
