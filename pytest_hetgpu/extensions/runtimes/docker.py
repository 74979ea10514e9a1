"""Nodes that are containers: on this machine's Docker engine, or on each host's over ssh."""

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
from pytest_hetgpu.extensions.runtimes.base import Gathering, Member, MemberRuntime, Service
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location, Spot
from pytest_hetgpu.extensions.runtimes.traits.policy import MACHINE, LeaseKey, Loss
from pytest_hetgpu.model.job import Hardware, Job, Node, Reach

_OVER_TLS = "its engine is reached over TLS, which gives no way to a lock there"


class Docker(MemberRuntime):
    """A node is a container whose main process is the node agent: it ends with us, and the engine then removes it."""

    containers = True
    encloses = True
    losses: ClassVar = {"engine-lost@docker": Loss("the container engine went away", service=True)}
    client = "docker"
    remark = "# --build-arg and --network of docker build are of the site that this was found at: leave them out."
    spot_kind = "engine"

    @classmethod
    def open(cls, node: Node, gathering: Gathering) -> Member:
        """As `MemberRuntime.open`; its image is pulled or built first where the engine lacks it."""
        from pytest_hetgpu.extensions.runtimes._docker.node import opened

        return opened(node, gathering)

    @classmethod
    def services(cls, nodes: Sequence[Node]) -> tuple[Service, ...]:
        """As `MemberRuntime.services`: the engines."""
        from pytest_hetgpu.extensions.runtimes._docker.node import services

        return services(nodes)

    @classmethod
    def shut(cls) -> None:
        """As `MemberRuntime.shut`: connections to engines, and their tunnels."""
        from pytest_hetgpu.extensions.runtimes._docker.node import shut

        shut()

    @classmethod
    def check_image(cls, image: str | None) -> None:
        """As `Policy.check_image`."""
        if not image:
            raise ValueError("runtime docker needs an image: a reference, or a folder with a Dockerfile")

    @classmethod
    def shared(cls, hardware: Hardware) -> bool:
        """As `Policy.shared`: only GPUs are for one node alone."""
        return hardware.accelerator.platform == "cpu"

    @classmethod
    def lease(cls, node: Node) -> LeaseKey | None:
        """As `Policy.lease`: the engine's machine. One over TLS gives no way to it, and only its name is held here."""
        try:
            at = address(node.name, node.reach, os.environ)
        except ProvisionError:
            return LeaseKey(MACHINE, node.host)  # making the node will say what is the matter
        if at.by_ssh:
            return LeaseKey(at.host, node.host, at.reach)
        return LeaseKey(MACHINE, node.host) if at.local else LeaseKey(at.url, at.where, alone=_OVER_TLS)

    @classmethod
    def prepare(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """As `PlanLines.prepare`; docker starts ssh by itself, and knows of no key."""
        by_ssh = (node.reach for node in nodes if node.reach.engine.startswith("ssh://"))
        for reach in dict.fromkeys(reach for reach in by_ssh if reach.key):
            assert reach.key
            yield f"# {shlex.join(docker(reach))} uses your ssh: ssh-add {shlex.quote(reach.key)} first"
        yield from cls.create(job, nodes, placement)

    @classmethod
    def create(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """As `PlanLines.create`: images, the network, the containers."""
        built = dict.fromkeys(command_line.build_command(node.image, node.reach) for node in nodes if node.image)
        yield from (shlex.join(command) for command in built if command)
        if _own_network(nodes):
            yield shlex.join(command_line.network_command(job.starter.reach, placement))
        yield from (shlex.join(command_line.run_command(node, placement)) for node in nodes if node.image)

    @classmethod
    def inside(cls, node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
        """As `PlanLines.inside`."""
        name = container_name(node, placement)
        return shlex.join((*docker(node.reach), "exec", *("-i",) * stdin, name, *argv))

    @classmethod
    def copy(cls, node: Node, placement: str, source: str, target: str) -> str:
        """As `PlanLines.copy`."""
        return shlex.join((*docker(node.reach), "cp", source, f"{container_name(node, placement)}:{target}"))

    @classmethod
    def remove(cls, job: Job, nodes: Sequence[Node], placement: str, folder: str) -> Iterator[str]:
        """As `PlanLines.remove`."""
        for node in nodes:
            yield shlex.join((*docker(node.reach), "rm", "-f", container_name(node, placement)))

    @classmethod
    def give_back(cls, job: Job, nodes: Sequence[Node], placement: str) -> Iterator[str]:
        """As `PlanLines.give_back`."""
        if _own_network(nodes):
            yield shlex.join((*docker(job.starter.reach), "network", "rm", command_line.network_name(placement)))

    @classmethod
    def login(cls, node: Node) -> str:
        """As `PlanLines.login`: the user of the container, not the one who gets to its host."""
        user = node.container.user if node.container else ""
        return user.partition(":")[0] or "root"

    @classmethod
    def location(cls, spot: Spot) -> Location:
        """As `Leftovers.location`."""
        from pytest_hetgpu.extensions.runtimes._docker.leftovers import OnEngine

        return OnEngine(spot)

    @classmethod
    def spot(cls, reach: Reach, environ: Mapping[str, str]) -> Spot | None:
        """As `Leftovers.spot`."""
        return engine_spot(reach, environ)

    @classmethod
    def usual_spot(cls, environ: Mapping[str, str]) -> Spot | None:
        """As `Leftovers.usual_spot`: the engine that DOCKER_HOST names, or whose socket is here."""
        usual = engine_spot(Reach(), environ)
        url = usual.reach.engine or f"unix://{SOCKET}"
        there = not url.startswith("unix://") or Path(url.removeprefix("unix://")).exists()
        return usual if there else None


def _own_network(nodes: Sequence[Node]) -> bool:
    return any(node.container and node.container.network == "user" for node in nodes)
