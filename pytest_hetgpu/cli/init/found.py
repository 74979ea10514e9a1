"""The parts of this machine for a first matrix, and the user's wishes beyond them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_hetgpu.model.facts import Environment

OPEN_MPI, PYTORCH = "Open MPI", "torch"
_PLATFORMS = ("cuda", "rocm")


@dataclass(frozen=True, slots=True)
class FoundStack:
    """One MPI: its name in matrices, its release in words, its folder, and the names of the transports that it has.

    `unusable` is the reason why our workloads cannot run on it, "" if they can.
    """

    name: str
    release: str
    prefix: str
    transports: tuple[str, ...]
    torch: bool = False
    unusable: str = ""


@dataclass(frozen=True, slots=True)
class FoundGpus:
    """The GPUs of this machine, of one platform; `arch` is that of all, "" if it is not known or they differ."""

    platform: str
    arch: str
    count: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of Slurm with its number of nodes that take jobs; `gres` as sinfo prints it, "" for none."""

    name: str
    nodes: int
    gres: str = ""


@dataclass(frozen=True, slots=True)
class FoundMachine:
    """The machine and the wishes. `engine` is the name and version of a container engine.

    `program` is the user's command, and `hosts` are those that the user named.
    """

    host: str
    stacks: tuple[FoundStack, ...] = ()
    gpus: FoundGpus | None = None
    partitions: tuple[Partition, ...] = ()
    engine: str = ""
    program: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def transports_of(vendor: str, environment: Environment) -> tuple[str, ...]:
    """Return the names of the transports that an MPI has, by the facts about it; `auto` is in each.

    `shm` is in each but MPICH whose only device is ch4:ucx: it is built without shared memory of its own.
    PyTorch by itself has no MPI, and so none.
    """
    if vendor == PYTORCH:
        return ()
    providers = environment.items("libfabric.providers")
    if vendor == OPEN_MPI:
        pml = environment.items("openmpi.pml")
        tcp = {"ob1-tcp": "ob1" in pml and "tcp" in environment.items("openmpi.btl"), "ucx-tcp": "ucx" in pml}
        ofi, shm = "ofi" in environment.items("openmpi.mtl"), True
    else:
        device = environment.text("mpich.device") or ""
        tcp, ofi = {"ucx-tcp": "ucx" in device}, "ofi" in device
        shm = device != "ch4:ucx" or "--with-ch4-shmmods=" in (environment.text("mpich.configure") or "")
    tcp["ofi-tcp"] = ofi and "tcp" in providers
    return ("auto", *(("shm",) if shm else ()), *(name for name, there in tcp.items() if there))


def gpus_of(environment: Environment) -> FoundGpus | None:
    """Return the GPUs that the facts name; None without any."""
    for platform in _PLATFORMS:
        devices = environment.items(f"{platform}.devices")
        if devices:
            arch = environment.items(f"{platform}.arch")
            return FoundGpus(platform, arch[0] if len(arch) == 1 else "", len(devices))
    return None


def partitions_of(lines: Iterable[str]) -> tuple[Partition, ...]:
    """Parse `sinfo -h -o "%P|%a|%D|%G"`: partitions that are up. A name that no matrix takes is left out."""
    found: dict[str, Partition] = {}
    for line in lines:
        name, up, nodes, gres = (*line.strip().split("|"), "", "", "", "")[:4]
        name = name.rstrip("*")
        if up != "up" or not nodes.isdecimal() or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,60}", name):
            continue
        gres = "" if gres in ("(null)", "N/A") else gres
        before = found.get(name)
        found[name] = Partition(
            name, int(nodes) + (before.nodes if before else 0), gres or (before.gres if before else "")
        )
    return tuple(found.values())
