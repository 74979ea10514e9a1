"""Nodes that are simply there and can be reached by ssh: bare metal, virtual machines, a cluster's login."""

from __future__ import annotations

from pytest_hetgpu.extensions.runtimes.base import Deployment, NodeProvider, RemoteNode
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest
from pytest_hetgpu.model.job import ConnectionInfo, Node


class Ssh(NodeProvider):
    """A node is a login on a host. All that is needed there is python3 and, for a job of several nodes, sshd."""

    needs_inventory = True

    @classmethod
    def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
        """As `NodeProvider.open`; NotHere without an ssh client here."""
        from pytest_hetgpu.extensions.runtimes._ssh import opened

        return opened(node, deployment)

    @classmethod
    def lease(cls, node: Node) -> LeaseRequest | None:
        """As `Policy.lease`: the host itself."""
        return LeaseRequest(node.host, node.host, ConnectionInfo("", node.reach.user, node.reach.port, node.reach.key))
