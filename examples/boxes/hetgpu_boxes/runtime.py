"""Nodes that `env` leads to."""

import shlex

from pytest_hetgpu.api import (
    Deployment,
    LeaseRequest,
    Node,
    NodeProvider,
    ProvisionError,
    RemoteNode,
    Shape,
    Text,
    reached_by,
)


class BoxSettings(Shape):
    """The key `boxes` of a kind of hardware, and of an inventory."""

    lid: Text = "closed"
    site: Text = "lab"


class Boxes(NodeProvider):
    """A node is a process of `env`; its host in the inventory must be called box."""

    settings = BoxSettings
    site_settings = BoxSettings

    @classmethod
    def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
        if not node.host.startswith("box"):
            raise ProvisionError(node.name, f"{node.host} is no box: give one in the inventory")
        return reached_by(cls.command(node), node, deployment)

    @classmethod
    def command(cls, node: Node) -> tuple[str, ...]:
        given = cls.settings_of(node.hardware)
        return ("env", f"BOX={node.host}", f"LID={given.lid}", f"SITE={given.site}")

    @classmethod
    def exec_line(cls, node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
        return shlex.join((*cls.command(node), *argv))

    @classmethod
    def lease(cls, node: Node) -> LeaseRequest:
        return LeaseRequest(f"box {node.host}", node.host)
