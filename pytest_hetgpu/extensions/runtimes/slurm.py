"""Nodes that Slurm gives: one allocation for a placement, held for its cells by a process that ends when we do.

On each node a step runs the agent, as `docker` and `ssh` have one: a launcher is started on the first node, srun as a
step of the allocation, mpirun and torchrun by ssh between the nodes (which knows nothing of components, so that one
mpirun starts a heterogeneous job). Slurm's programs and munge must work where we run and on the nodes.
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
    """A node is one of an allocation that all nodes of the placement are in."""

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
        """As `NodeProvider.open`; the first to ask waits in Slurm's queue for all."""
        from pytest_hetgpu.extensions.runtimes._slurm.node import opened

        return opened(node, deployment)

    @classmethod
    def make_settings(cls, given: SlurmShape, hardware: Hardware) -> Batch:
        """As `Policy.make_settings`."""
        return given.over(Batch(image=hardware.image or "", platform=hardware.accelerator.platform))

    @classmethod
    def with_site(cls, settings: Batch, site: SlurmSite) -> Batch:
        """As `Policy.with_site`."""
        return site.over(settings)

    @classmethod
    def in_placement(cls, kinds: Sequence[Hardware], ranks: Sequence[int], index: int) -> Hardware:
        """As `Policy.in_placement`: which node of which component it is, and what of a shared one is its own."""
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
        """As `Policy.lease`: none."""
        return None

    @classmethod
    def allocate(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """As `PlanLines.allocate`."""
        batches = [cls.settings_of(node.hardware) for node in nodes]
        yield shlex.join(("salloc", *components(f"hetgpu-{placement}", batches)))

    @classmethod
    def exec_line(cls, node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
        """As `PlanLines.exec_line`, in the shell that salloc gives."""
        # Else srun would read what is pasted behind it.
        unheard = () if stdin else ("--input=none",)
        return shlex.join((*one_step(cls.settings_of(node.hardware)), *unheard, *argv))

    @classmethod
    def start_line(cls, job: Job, command: Command, placement: str) -> str:
        """As `PlanLines.start_line`."""
        tokens = words_of(command)
        if command.argv[0] == "srun":
            return shlex.join(tokens)
        # mpirun goes by ssh: of a heterogeneous job Slurm shows it one component.
        away = ("env", "-u", "SLURM_JOBID", "-u", "SLURM_JOB_ID")
        return cls.exec_line(job.launch_node, placement, *away, *tokens)

    @classmethod
    def remove(cls, job: Job, nodes: Sequence[Node], placement: str, folder: str) -> Iterator[str]:
        """As `PlanLines.remove`."""
        yield from (cls.exec_line(node, placement, "rm", "-r", folder) for node in nodes)

    @classmethod
    def release(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """As `PlanLines.release`."""
        yield "exit  # gives the allocation back"

    @classmethod
    def address_expression(cls, node: Node, placement: str) -> str:
        """As `PlanLines.address_expression`."""
        return f"$({cls.exec_line(node, placement, 'hostname')})"
