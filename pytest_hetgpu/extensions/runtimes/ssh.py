"""Nodes that already exist and are reached by ssh: bare metal, virtual machines, the login node of a cluster."""

from __future__ import annotations

from pytest_hetgpu.extensions.runtimes.base import Deployment, NodeProvider, RemoteNode
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest
from pytest_hetgpu.model.job import ConnectionInfo, Node


class Ssh(NodeProvider):
    """A node that is a login on a host. It needs only python3 and, for a job of several nodes, sshd."""

    needs_inventory = True

    @classmethod
    def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
        """Implement `NodeProvider.open`; raise NotHere without an ssh client here."""
        from pytest_hetgpu.extensions.runtimes._ssh import opened

        return opened(node, deployment)

    @classmethod
    def lease(cls, node: Node) -> LeaseRequest | None:
        """Implement `Policy.lease`: lease the host itself."""
        return LeaseRequest(node.host, node.host, ConnectionInfo("", node.reach.user, node.reach.port, node.reach.key))
