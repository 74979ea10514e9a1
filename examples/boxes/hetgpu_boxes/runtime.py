"""Nodes that `env` leads to."""

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.agent import reached_by
from pytest_hetgpu.extensions.runtimes.base import Gathering, Member, MemberRuntime
from pytest_hetgpu.model.job import Node


class Boxes(MemberRuntime):
    """A node is a process of `env`; its host in the inventory must be called box."""

    @classmethod
    def open(cls, node: Node, gathering: Gathering) -> Member:
        if not node.host.startswith("box"):
            raise ProvisionError(node.name, f"{node.host} is no box: give one in the inventory")
        return reached_by(("env", f"BOX={node.host}"), node, gathering)
