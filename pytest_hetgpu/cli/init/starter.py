"""The first matrix and inventory, as text with comments, of what was found. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pytest_hetgpu.cli.init.found import FoundGpus, FoundMachine
from pytest_hetgpu.extensions.runtimes.traits.first_matrix import (
    engine_comment,
    partition_hardware,
    partition_inventory,
    partition_kind,
)
from pytest_hetgpu.store.text import one_line

MATRIX, INVENTORY = "hetgpu.yaml", "hetgpu.hosts.yaml"
USUAL_STACK = "openmpi-5"
_TRANSPORTS = {
    "auto": ("{}", "what the MPI chooses itself"),
    "shm": ("{}", "shared memory of one host"),
    "ob1-tcp": ("{family: ob1, btl: [tcp, self]}", "Open MPI's own TCP"),
    "ucx-tcp": ("{family: ucx, tls: [tcp, self]}", "UCX over TCP"),
    "ofi-tcp": ("{family: ofi, provider: tcp}", "libfabric over TCP"),
}


def starter_files(found: FoundMachine) -> dict[str, str]:
    """Return the text of each file by its name; an inventory only if hosts or partitions need one."""
    files = {MATRIX: "\n".join(_matrix(found)) + "\n"}
    inventory = list(_inventory(found))
    if inventory:
        files[INVENTORY] = "\n".join(inventory) + "\n"
    return files


def run_command(found: FoundMachine) -> str:
    """Return the command that runs the matrix."""
    inventory = f" --hetgpu-inventory {INVENTORY}" if found.hosts or found.partitions else ""
    return f"pytest --hetgpu-matrix {MATRIX}{inventory}"


def _stacks(found: FoundMachine) -> tuple[str, ...]:
    """Return the stacks with an MPI; without any, the usual one, whose cells are then skipped with advice."""
    return tuple(stack.name for stack in found.stacks if stack.transports) or (USUAL_STACK,)


def _matrix(found: FoundMachine) -> Iterator[str]:
    yield f"# What `hetgpu init` found on {one_line(found.host)}. Change it as you like, and run it:"
    yield f"#   {run_command(found)}"
    yield "name: hetgpu"
    yield ""
    yield "hardware:"
    yield "  # Processes of this machine, each kind with another MPI."
    releases = {stack.name: one_line(f"{stack.release} in {stack.prefix or '/usr'}") for stack in found.stacks}
    for name in _stacks(found):
        about = releases.get(name, "not here yet: its cells print how to install it")
        yield f"  {name}: {{mpi: {{stack: {name}}}}}  # {about}"
    for stack in found.stacks:
        if stack.unusable:
            yield f"  # {stack.name} is left out: {one_line(stack.unusable)}"
            yield f"  # A workload `command` without mpi4py runs on {{mpi: {{stack: {stack.name}}}}} as it is."
    yield from _other_hardware(found)
    yield ""
    yield "axes:"
    yield "  # Two ranks on this machine."
    yield "  placement:"
    yield from (f"    {name}: [{name}, {name}]" for name in _stacks(found))
    yield "  transport:"
    for name in _offered(found):
        settings, words = _TRANSPORTS[name]
        yield f"    {name}: {settings}  # {words}"
    yield "  workload:"
    yield "    send_recv: {sizes: [8, 64K, 1M]}"
    yield "    allreduce: {sizes: [8, 64K, 1M]}"
    yield from _program(found.program)
    yield from _includes(found)
    yield from _excludes(found)
    yield from _engine(found)


def _offered(found: FoundMachine) -> tuple[str, ...]:
    there = {name for stack in found.stacks for name in stack.transports} or {"auto", "shm"}
    return tuple(name for name in _TRANSPORTS if name in there)


def _other_hardware(found: FoundMachine) -> Iterator[str]:
    if found.gpus and _torch(found):
        arch = f", arch: {found.gpus.arch}" if found.gpus.arch else ""
        yield f"  # The {_count(found.gpus)} of this machine, with the PyTorch of stack {_torch(found)}."
        yield f"  gpu: {{platform: {found.gpus.platform}{arch}, mpi: {{stack: {_torch(found)}}}}}"
    stack = _stacks(found)[0]
    if found.hosts:
        yield f"  # Hosts that ssh reaches; {INVENTORY} names them. Their MPI is found by PATH there, or by `prefix`."
        yield f"  node: {{runtime: ssh, mpi: {{stack: {stack}}}}}"
    for one in found.partitions:
        yield from partition_hardware(one.name, one.gres, stack)


def _program(program: Sequence[str]) -> Iterator[str]:
    if not program:
        yield "    # A program of your own:"
        yield "    # program: {kind: command, argv: [/path/to/app, --size, 8], check: false}"
        return
    yield "    # Your program. Its exit status alone decides. To judge its results, replace `check: false` by"
    yield "    # `success: PATTERN`, `tests: tap` or `junit: FILE`. {python} is the interpreter of each MPI."
    yield f"    program: {{kind: command, argv: {json.dumps(list(program)).replace('${', '$${')}, check: false}}"


def _includes(found: FoundMachine) -> Iterator[str]:
    own = ", program" if found.program else ""
    rules: list[str] = []
    if found.gpus and _torch(found):
        rules += [
            "  # NCCL or RCCL between the GPUs, one rank for each.",
            f"  - placement: {{name: gpus, nodes: [gpu], ranks_per_node: {found.gpus.count}, launcher: torchrun}}",
            "    transport: {name: nccl}",
            "    workload: [{name: allreduce-gpu, kind: allreduce, memory: device}, {name: ddp_train, memory: device}]",
        ]
    if found.hosts:
        nodes = ", ".join(["node"] * min(len(found.hosts), 2))
        rules += [
            "  # One rank on each of two hosts.",
            f"  - placement: {{name: hosts, nodes: [{nodes}]}}",
            "    transport: auto",
            f"    workload: [send_recv, allreduce{own}]" if len(found.hosts) > 1 else f"    workload: [allreduce{own}]",
        ]
    for one in found.partitions:
        nodes = ", ".join([partition_kind(one.name)] * min(one.nodes, 2))
        rules += [
            f"  - placement: {{name: {partition_kind(one.name)}, nodes: [{nodes}], launcher: srun}}",
            "    transport: auto",
            f"    workload: [allreduce{own}]",
        ]
    if rules:
        yield from ("", "# Cells beside the product of the axes.", "include:", *rules)


def _excludes(found: FoundMachine) -> Iterator[str]:
    lacking = {
        stack.name: [name for name in _offered(found) if name not in stack.transports]
        for stack in found.stacks
        if stack.transports
    }
    rules = [
        f"  - {{placement: {name}, transport: [{', '.join(names)}], reason: this MPI has none of it}}"
        for name, names in lacking.items()
        if names
    ]
    if rules:
        yield from ("", "exclude:", *rules)


def _engine(found: FoundMachine) -> Iterator[str]:
    if found.engine:
        yield ""
        yield from engine_comment(one_line(found.engine), USUAL_STACK)


def _inventory(found: FoundMachine) -> Iterator[str]:
    if not found.hosts and not found.partitions:
        return
    yield "hardware:"
    local = (*_stacks(found), *(["gpu"] if found.gpus and _torch(found) else []))
    yield from (f"  {name}: [localhost]" for name in local)
    if found.hosts:
        yield "  # `user`, `port`, `key` and `prefix` (of the MPI there) may be added:"
        yield "  # node: [{address: gpu1, user: me, prefix: /opt/openmpi}]"
        yield f"  node: {json.dumps(list(found.hosts))}"
    if found.partitions:
        yield from partition_inventory(one.name for one in found.partitions)


def _torch(found: FoundMachine) -> str:
    """Return the stack whose PyTorch is used; "" without any."""
    return next((stack.name for stack in found.stacks if stack.torch), "")


def _count(gpus: FoundGpus) -> str:
    return f"{gpus.count} GPU{'s' * (gpus.count != 1)}"
