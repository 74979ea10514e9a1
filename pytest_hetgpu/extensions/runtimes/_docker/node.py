"""A node that is a container: creation, start, and connection."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from pytest_hetgpu.errors import HetgpuError, ProvisionError
from pytest_hetgpu.extensions.runtimes._docker import images, leftovers, networks
from pytest_hetgpu.extensions.runtimes._docker.address import engine_spot
from pytest_hetgpu.extensions.runtimes._docker.attach import Attached
from pytest_hetgpu.extensions.runtimes._docker.containers import start
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine, EngineGone, close_engines, engine_of, engines
from pytest_hetgpu.extensions.runtimes.agent.link import AgentConnection, boot_command
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment, RemoteNode, Service
from pytest_hetgpu.extensions.runtimes.process.ledger import tracker
from pytest_hetgpu.model.job import Node


def opened(node: Node, deployment: Deployment) -> RemoteNode:
    """Return the node, after pulling or building its image if the engine lacks it.

    Open another tunnel if the tunnel to the engine breaks.
    """
    if node.image is None or node.container is None:
        raise ProvisionError(node.name, "has no image: give `image` with its hardware")
    engine = engine_of(node.name, node.reach)
    try:
        return _open(engine, node, deployment)
    except EngineGone as gone:
        if not engine.reopen(gone.api):
            raise
        return _open(engine, node, deployment)


def services(nodes: Sequence[Node]) -> tuple[Service, ...]:
    """Return the engines of nodes. An address that cannot be used raises only when its node is opened."""
    found: dict[Service, None] = {}
    for node in nodes:
        with suppress(ProvisionError):
            found[engine_of(node.name, node.reach)] = None
    return tuple(found)


def shut() -> None:
    """Close the connections to engines and their tunnels; clear the record of engines without leftovers of this run."""
    label = tracker().label
    for engine in engines() if label else ():
        with suppress(HetgpuError):
            if engine.connected and not leftovers.labelled(engine, "engine", label):
                for reach in engine.reaches:
                    tracker().cleared(engine_spot(reach, os.environ))
    close_engines()


def _open(engine: Engine, node: Node, deployment: Deployment) -> RemoteNode:
    # An engine that was never reached has no leftovers; every later cleanup would look for it.
    with engine.speaking(node.name):
        tracker().place(engine_spot(node.reach, os.environ), once=True)
    deployment.once(("docker leavings", engine), lambda _: networks.remove_left_behind(engine, node.name))
    pipe = _container(engine, node, deployment)
    return ContainerNode(engine, AgentConnection(pipe, node.name), node.name, pipe.close).settled(deployment)


class ContainerNode(AgentNode):
    """The agent in a container of an engine."""

    def __init__(self, engine: Engine, link: AgentConnection, name: str, after: Callable[[], None]) -> None:
        super().__init__(name, link, after=after)
        self._engine = engine

    def close(self) -> None:
        """Implement `RemoteNode.close`; the engine removes the container when its agent ends."""
        with self._engine.removal():
            super().close()


def _container(engine: Engine, node: Node, deployment: Deployment) -> Attached:
    """Return the node's started container; make an image ready again if another process removed it meanwhile."""
    assert node.image is not None
    images.ensure(engine, node.image, node.name, deployment)
    for again in (True, False):
        try:
            return start(
                engine,
                node,
                deployment,
                network=networks.network_of(engine, node, deployment),
                groups=networks.group_numbers(engine, node, deployment),
                command=boot_command(),
            )
        except ProvisionError as error:
            if not again or "No such image" not in str(error):
                raise
        images.forget(engine, node.image)
        images.ensure(engine, node.image, node.name, deployment)
    raise AssertionError
