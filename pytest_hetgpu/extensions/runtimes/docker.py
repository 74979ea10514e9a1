"""Nodes that are containers, on the Docker engine of this machine or of another host over ssh."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes._docker import command_line
from pytest_hetgpu.extensions.runtimes._docker.address import SOCKET, address, engine_spot
from pytest_hetgpu.extensions.runtimes._docker.command_line import container_name, docker
from pytest_hetgpu.extensions.runtimes.base import Deployment, NodeProvider, RemoteNode, Service
from pytest_hetgpu.extensions.runtimes.traits.leftovers import LeftoverStore, Location
from pytest_hetgpu.extensions.runtimes.traits.policy import MACHINE, LeaseRequest, Loss
from pytest_hetgpu.model.job import ConnectionInfo, Hardware, Job, Node

_OVER_TLS = "its engine is reached over TLS, which gives no way to a lock there"


class Docker(NodeProvider):
    """A container whose main process is the node agent: it ends with this process, and the engine then removes it."""

    uses_containers = True
    encloses = True
    losses: ClassVar = {"engine-lost@docker": Loss("the container engine went away", service=True)}
    client = "docker"
    build_note = "# --build-arg and --network of docker build are of the site that this was found at: leave them out."
    location_kind = "engine"

    @classmethod
    def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
        """Implement `NodeProvider.open`; pull or build the image first if the engine lacks it."""
        from pytest_hetgpu.extensions.runtimes._docker.node import opened

        return opened(node, deployment)

    @classmethod
    def services(cls, nodes: Sequence[Node]) -> tuple[Service, ...]:
        """Implement `NodeProvider.services`: return the engines."""
        from pytest_hetgpu.extensions.runtimes._docker.node import services

        return services(nodes)

    @classmethod
    def shut(cls) -> None:
        """Implement `NodeProvider.shut`: close connections to engines, and their tunnels."""
        from pytest_hetgpu.extensions.runtimes._docker.node import shut

        shut()

    @classmethod
    def check_image(cls, image: str | None) -> None:
        """Implement `Policy.check_image`."""
        if not image:
            raise ValueError("runtime docker needs an image: a reference, or a folder with a Dockerfile")

    @classmethod
    def shares_host(cls, hardware: Hardware) -> bool:
        """Implement `Policy.shares_host`: only GPUs require a node alone."""
        return hardware.accelerator.platform == "cpu"

    @classmethod
    def lease(cls, node: Node) -> LeaseRequest | None:
        """Implement `Policy.lease`: lease the engine's machine. For an engine over TLS, lease only its name here."""
        try:
            at = address(node.name, node.reach, os.environ)
        except ProvisionError:
            return LeaseRequest(MACHINE, node.host)  # creating the node will report the error
        if at.by_ssh:
            return LeaseRequest(at.host, node.host, at.reach)
        return LeaseRequest(MACHINE, node.host) if at.local else LeaseRequest(at.url, at.where, alone=_OVER_TLS)

    @classmethod
    def prepare(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Implement `PlanLines.prepare`; docker starts ssh by itself, and takes no option for a key."""
        by_ssh = (node.reach for node in nodes if node.reach.engine.startswith("ssh://"))
        for reach in dict.fromkeys(reach for reach in by_ssh if reach.key):
            assert reach.key
            yield f"# {shlex.join(docker(reach))} uses your ssh: ssh-add {shlex.quote(reach.key)} first"
        yield from cls.create(job, nodes, placement)

    @classmethod
    def create(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Implement `PlanLines.create`: yield images, the network, the containers."""
        built = dict.fromkeys(command_line.build_command(node.image, node.reach) for node in nodes if node.image)
        yield from (shlex.join(command) for command in built if command)
        if _own_network(nodes):
            yield shlex.join(command_line.network_command(job.launch_node.reach, placement))
        yield from (shlex.join(command_line.run_command(node, placement)) for node in nodes if node.image)

    @classmethod
    def exec_line(cls, node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
        """Implement `PlanLines.exec_line`."""
        name = container_name(node, placement)
        return shlex.join((*docker(node.reach), "exec", *("-i",) * stdin, name, *argv))

    @classmethod
    def copy_line(cls, node: Node, placement: str, source: str, target: str) -> str:
        """Implement `PlanLines.copy_line`."""
        return shlex.join((*docker(node.reach), "cp", source, f"{container_name(node, placement)}:{target}"))

    @classmethod
    def remove(cls, job: Job, nodes: Sequence[Node], placement: str, folder: str) -> Iterator[str]:
        """Implement `PlanLines.remove`."""
        for node in nodes:
            yield shlex.join((*docker(node.reach), "rm", "-f", container_name(node, placement)))

    @classmethod
    def release(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """Implement `PlanLines.release`."""
        if _own_network(nodes):
            yield shlex.join((*docker(job.launch_node.reach), "network", "rm", command_line.network_name(placement)))

    @classmethod
    def sshd_user(cls, node: Node) -> str:
        """Implement `PlanLines.sshd_user`: return the user of the container, not the login on its host."""
        user = node.container.user if node.container else ""
        return user.partition(":")[0] or "root"

    @classmethod
    def leftovers(cls, location: Location) -> LeftoverStore:
        """Implement `Leftovers.leftovers`."""
        from pytest_hetgpu.extensions.runtimes._docker.leftovers import OnEngine

        return OnEngine(location)

    @classmethod
    def location_of(cls, reach: ConnectionInfo, environ: Mapping[str, str]) -> Location | None:
        """Implement `Leftovers.location_of`."""
        return engine_spot(reach, environ)

    @classmethod
    def default_location(cls, environ: Mapping[str, str]) -> Location | None:
        """Implement `Leftovers.default_location`: return the engine of DOCKER_HOST, or of a socket on this machine."""
        usual = engine_spot(ConnectionInfo(), environ)
        url = usual.reach.engine or f"unix://{SOCKET}"
        there = not url.startswith("unix://") or Path(url.removeprefix("unix://")).exists()
        return usual if there else None


def _own_network(nodes: Sequence[Node]) -> bool:
    return any(node.container and node.container.network == "user" for node in nodes)
