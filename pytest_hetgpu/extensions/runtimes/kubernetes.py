"""Nodes that are Kubernetes pods. Those of a placement are created at once, kept for its cells, and removed together.

A pod only waits. The agent runs in it by `kubectl exec`, as for `docker` and `ssh`, and ends with its stdin. Launchers
use ssh between the pods, so their addresses must reach each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pytest_hetgpu.extensions.runtimes._kubernetes import kubectl
from pytest_hetgpu.extensions.runtimes.base import Deployment, NodeProvider, RemoteNode
from pytest_hetgpu.extensions.runtimes.pods.request import GPUS, Pods, quarrel
from pytest_hetgpu.extensions.runtimes.pods.shape import PodsShape, PodsSite, reference
from pytest_hetgpu.extensions.runtimes.traits.leftovers import LeftoverStore, Location
from pytest_hetgpu.extensions.runtimes.traits.plan_lines import words_of
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest, Loss
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Command, Hardware, Job, Node

NETDEV = "eth0"
"""The first interface of a pod."""


class Kubernetes(NodeProvider):
    """A pod of its own per node; the pods of a placement are created and removed together."""

    settings = PodsShape
    site_settings = PodsSite
    request_type = Pods
    schedules = True
    encloses = True
    losses: ClassVar = {
        "node-lost@kubernetes": Loss("the node of a pod went away"),
        "preempted@kubernetes": Loss("pods of a higher priority took the place"),
        "deleted@kubernetes": Loss("somebody deleted a pod"),
        "evicted@kubernetes": Loss("a node had too little of something, and evicted a pod"),
        "time-limit@kubernetes": Loss("a pod reached its deadline"),
        "no-server@kubernetes": Loss("the API server did not answer any more"),
    }
    rdma_advice = "load the HCA's driver; on Kubernetes ask for the RDMA resource (rdma/rdma: 1) and its network"
    client = "kubectl"
    location_kind = "namespace"

    @classmethod
    def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
        """Implement `NodeProvider.open`; the first caller waits for the pods of all nodes."""
        from pytest_hetgpu.extensions.runtimes._kubernetes.node import opened

        return opened(node, deployment)

    @classmethod
    def check_image(cls, image: str | None) -> None:
        """Implement `Policy.check_image`."""
        if not image:
            raise ValueError("runtime kubernetes needs an image: a reference that the cluster can pull")
        try:
            reference(image)
        except ValueError as error:
            raise ValueError(f"image: {error}") from None

    @classmethod
    def make_settings(cls, given: PodsShape, hardware: Hardware) -> Pods:
        """Implement `Policy.make_settings`; request the platform's GPUs unless `resources` has its own."""
        wanted = hardware.accelerator
        gpus = {GPUS[wanted.platform]: str(wanted.count)} if wanted.platform in GPUS else {}
        return given.over(Pods(image=hardware.image or "", resources=gpus))

    @classmethod
    def with_site(cls, settings: Pods, site: PodsSite) -> Pods:
        """Implement `Policy.with_site`."""
        return site.over(settings)

    @classmethod
    def conflict(cls, kinds: Sequence[Hardware], *, launcher: bool = False) -> str:
        """Implement `Policy.conflict`."""
        return quarrel([(kind.name, cls.settings_of(kind)) for kind in kinds if kind.settings], launcher=launcher)

    @classmethod
    def known_interface(cls, hardware: Hardware) -> InterfaceChoice | None:
        """Implement `Policy.known_interface`."""
        pods = cls.settings_of(hardware)
        return None if pods is None or pods.host_network else InterfaceChoice(NETDEV, "the first one of a pod")

    @classmethod
    def lease(cls, node: Node) -> LeaseRequest | None:
        """Implement `Policy.lease`: return None."""
        return None

    @classmethod
    def allocate(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Implement `PlanLines.allocate`."""
        yield from kubectl.creation(nodes, placement)

    @classmethod
    def prepare(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Implement `PlanLines.prepare`."""
        yield from kubectl.arrival(nodes, placement)

    @classmethod
    def exec_line(cls, node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
        """Implement `PlanLines.exec_line`."""
        return kubectl.on(node, *argv, stdin=stdin)

    @classmethod
    def start_line(cls, job: Job, command: Command, placement: str) -> str:
        """Implement `PlanLines.start_line`; replace the hosts in the command by the addresses of their pods."""
        tokens = (*kubectl.cleared(job.launch_node), *words_of(command))
        pods = [node for node in job.all_nodes if node.hardware.runtime == job.launch_node.hardware.runtime]
        return kubectl.on(job.launch_node, *tokens, all_nodes=pods)

    @classmethod
    def alternatives(cls, job: Job, nodes: Sequence[Node], programs: str) -> Iterator[str]:
        """Implement `PlanLines.alternatives`."""
        yield from kubectl.alternatives(job, nodes, programs)

    @classmethod
    def remove(cls, job: Job, nodes: Sequence[Node], placement: str, folder: str) -> Iterator[str]:
        """Implement `PlanLines.remove`."""
        yield kubectl.removal(nodes, placement)

    @classmethod
    def before_sshd(cls, node: Node) -> str:
        """Implement `PlanLines.before_sshd`: most images lack the folder."""
        return "mkdir -p /run/sshd; "

    @classmethod
    def address_expression(cls, node: Node, placement: str) -> str:
        """Implement `PlanLines.address_expression`."""
        return kubectl.address(node)

    @classmethod
    def leftovers(cls, location: Location) -> LeftoverStore:
        """Implement `Leftovers.leftovers`."""
        from pytest_hetgpu.extensions.runtimes._kubernetes.leftovers import Namespace

        return Namespace(location)
