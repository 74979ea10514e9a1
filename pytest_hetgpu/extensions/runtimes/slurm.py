"""Nodes of a Slurm cluster. One allocation per placement is held for its cells by a process that ends with this one.

On each node a step runs the agent, as for `docker` and `ssh`. Each launcher starts on the first node: srun as a step,
mpirun and torchrun by ssh between the nodes. As ssh ignores components, one mpirun starts a heterogeneous job. The
Slurm programs and munge must work on this machine and on the nodes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from pytest_hetgpu.extensions.runtimes.base import Deployment, NodeProvider, RemoteNode
from pytest_hetgpu.extensions.runtimes.batch.request import Batch, components, groups, one_step
from pytest_hetgpu.extensions.runtimes.batch.shape import SlurmShape, SlurmSite
from pytest_hetgpu.extensions.runtimes.traits.plan_lines import words_of
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest, Loss
from pytest_hetgpu.model.job import Command, Hardware, Job, Node


class Slurm(NodeProvider):
    """A node of an allocation that contains all nodes of the placement."""

    settings = SlurmShape
    site_settings = SlurmSite
    request_type = Batch
    schedules = True
    shares_files = True
    losses: ClassVar = {
        "node-failure@slurm": Loss("the controller lost a node of the allocation"),
        "preempted@slurm": Loss("a job of a higher priority took the nodes"),
        "cancelled@slurm": Loss("somebody cancelled the allocation"),
        "time-limit@slurm": Loss("the allocation reached its time limit"),
    }
    foreground_sshd = True

    @classmethod
    def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
        """Implement `NodeProvider.open`; the first caller waits in the Slurm queue for all nodes."""
        from pytest_hetgpu.extensions.runtimes._slurm.node import opened

        return opened(node, deployment)

    @classmethod
    def make_settings(cls, given: SlurmShape, hardware: Hardware) -> Batch:
        """Implement `Policy.make_settings`."""
        return given.over(Batch(image=hardware.image or "", platform=hardware.accelerator.platform))

    @classmethod
    def with_site(cls, settings: Batch, site: SlurmSite) -> Batch:
        """Implement `Policy.with_site`."""
        return site.over(settings)

    @classmethod
    def in_placement(cls, kinds: Sequence[Hardware], ranks: Sequence[int], index: int) -> Hardware:
        """Implement `Policy.in_placement`: add the node's component, its index, and its share of a shared node."""
        kind, batch = kinds[index], cls.settings_of(kinds[index])
        if batch is None:
            return kind
        found = groups([one.name for one in kinds])
        group = found[index] if len({*found}) > 1 else None
        shared = 0 if batch.exclusive else ranks[index]
        relative = index - found.index(found[index])
        return replace(kind, settings=replace(batch, group=group, relative=relative, ranks=shared))

    @classmethod
    def lease(cls, node: Node) -> LeaseRequest | None:
        """Implement `Policy.lease`: return None."""
        return None

    @classmethod
    def allocate(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Implement `PlanLines.allocate`."""
        batches = [cls.settings_of(node.hardware) for node in nodes]
        yield shlex.join(("salloc", *components(f"hetgpu-{placement}", batches)))

    @classmethod
    def exec_line(cls, node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
        """Implement `PlanLines.exec_line`, in the shell that salloc gives."""
        # Otherwise srun would read the lines that are pasted after it.
        unheard = () if stdin else ("--input=none",)
        return shlex.join((*one_step(cls.settings_of(node.hardware)), *unheard, *argv))

    @classmethod
    def start_line(cls, job: Job, command: Command, placement: str) -> str:
        """Implement `PlanLines.start_line`."""
        tokens = words_of(command)
        if command.argv[0] == "srun":
            return shlex.join(tokens)
        # mpirun uses ssh: in a heterogeneous job, Slurm shows it only one component.
        away = ("env", "-u", "SLURM_JOBID", "-u", "SLURM_JOB_ID")
        return cls.exec_line(job.launch_node, placement, *away, *tokens)

    @classmethod
    def remove(cls, job: Job, nodes: Sequence[Node], placement: str, folder: str) -> Iterator[str]:
        """Implement `PlanLines.remove`."""
        yield from (cls.exec_line(node, placement, "rm", "-r", folder) for node in nodes)

    @classmethod
    def release(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Implement `PlanLines.release`."""
        yield "exit  # gives the allocation back"

    @classmethod
    def address_expression(cls, node: Node, placement: str) -> str:
        """Implement `PlanLines.address_expression`."""
        return f"$({cls.exec_line(node, placement, 'hostname')})"
