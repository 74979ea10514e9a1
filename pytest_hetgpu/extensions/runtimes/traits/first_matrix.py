"""Parts of the first matrix of a machine (`hetgpu init`) that belong to one runtime: its questions, and its text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

ENGINES = ("docker", "podman")
"""Programs of container engines; `ENGINE_VERSION` are their arguments."""
ENGINE_VERSION = ("version", "--format", "{{.Server.Version}}")
PARTITIONS = ("sinfo", "-h", "-o", "%P|%a|%D|%G")
"""The command that lists the partitions of a batch system."""
BATCH = "Slurm"


def partition_kind(name: str) -> str:
    """Return the name of the hardware of a partition."""
    return f"slurm-{name}"


def partition_hardware(name: str, gres: str, stack: str) -> Iterator[str]:
    """Yield the lines of the matrix for the nodes of a partition; `gres` as sinfo prints it."""
    asked = f", gres: {json.dumps(gres.partition('(')[0])}" if gres else ""
    yield f"  # Nodes of the partition {name} of {BATCH}. `time` is in minutes."
    yield f"  {partition_kind(name)}: {{runtime: slurm, slurm: {{time: 10{asked}}}, mpi: {{stack: {stack}}}}}"


def partition_inventory(names: Iterable[str]) -> Iterator[str]:
    """Yield the lines of the inventory for partitions."""
    yield f"# {BATCH} is asked for these; `account`, `qos` and `constraint` may be added."
    yield "slurm:"
    yield from (f"  {partition_kind(name)}: {{partition: {name}}}" for name in names)


def engine_comment(engine: str, stack: str) -> Iterator[str]:
    """Yield a comment for the matrix on nodes that are containers of an engine that answers."""
    yield f"# {engine} answers. Nodes may be containers of an image with an MPI, sshd and Python:"
    yield "#   hardware:"
    yield f"#     boxed: {{runtime: docker, image: REGISTRY/NAME:TAG, mpi: {{stack: {stack}}}}}"
