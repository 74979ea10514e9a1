"""A node that is a pod, and the kubectl that serves it."""

from __future__ import annotations

from contextlib import ExitStack

from pytest_hetgpu.errors import HetgpuError, ProvisionError
from pytest_hetgpu.extensions.runtimes._kubernetes import client, messages, pod_failures
from pytest_hetgpu.extensions.runtimes._kubernetes.placement import Placement, PodSlot
from pytest_hetgpu.extensions.runtimes.agent.link import AgentConnection, boot_command
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment, RemoteNode, Walltime
from pytest_hetgpu.extensions.runtimes.pods.request import INJECTED
from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe
from pytest_hetgpu.model.job import Node

_DECIDING = 10.0  # seconds in which a cluster decides the state of a pod
_NO_PYTHON = ('exec: "python3": executable file not found', 'exec: "python3": stat')


def opened(node: Node, deployment: Deployment) -> RemoteNode:
    """Return the node; the first caller waits for the pods of all nodes."""
    client.program()
    nodes = [one for one in deployment.nodes if one.hardware.runtime == node.hardware.runtime]
    placement = deployment.once("kubernetes", lambda closing: _placed(nodes, deployment, closing))
    if isinstance(placement, HetgpuError):
        raise placement
    place = placement.places[[one.index for one in nodes].index(node.index)]
    try:
        pipe = _Exec(placement, place)
    except OSError as error:
        raise ProvisionError(node.name, f"kubectl cannot be started: {error.strerror}") from error
    link = AgentConnection(pipe, node.name)
    placement.hold(place.pod, pipe.cut)
    return Pod(node.name, link, placement, place).settled(deployment)


def _placed(nodes: list[Node], deployment: Deployment, closing: ExitStack) -> Placement | HetgpuError:
    """Make the placement's pods; return them, or the error that holds for all its nodes."""
    try:
        placement = Placement(nodes, deployment)
    except HetgpuError as error:
        return error
    closing.callback(placement.close)
    return placement


class Pod(AgentNode):
    """A node that is a pod."""

    def __init__(self, name: str, link: AgentConnection, placement: Placement, place: PodSlot) -> None:
        super().__init__(name, link)
        self.allocated_host = place.address
        self.walltime = Walltime(placement.began, placement.pods.ttl)
        self.provision_facts = {
            "kubernetes.pod": f"{placement.cluster.namespace}/{place.pod}",
            "kubernetes.node": place.host,
            "kubernetes.queued": f"{placement.queued:.1f} s",
        }


class _Exec(ProcessPipe):
    """The pipe of an agent: a process in a pod, with its ends at kubectl and the API server."""

    def __init__(self, placement: Placement, place: PodSlot) -> None:
        self._cluster, self._place, self._container = placement.cluster, place, placement.pods.container
        cleared = [word for name in INJECTED.get(placement.pods.kind, ()) for word in ("-u", name)]
        without = ("env", *cleared) if cleared else ()
        super().__init__(
            self._cluster.argv("exec", "-i", place.pod, "-c", self._container, "--", *without, *boot_command()),
            self._cluster.environment(),
        )

    def cut(self) -> None:
        """Kill kubectl, which has lost its other end."""
        self._process.kill()

    def why_ended(self) -> str:
        """Implement `Pipe.why_ended`: the end of the pod by the cluster's record, else the message of kubectl."""
        said, pod, at = self.stderr(), self._place.pod, self._cluster
        if any(sign in said for sign in _NO_PYTHON):
            return "the image has no python3: a node needs Python 3.6 or newer as `python3` in its PATH"
        refused = messages.refusal(said, at.where, at.namespace, at.context) if "Error from server" in said else None
        # Then there was no connection, so no node is lost.
        if refused and refused.unreached:
            return refused.text
        if told := pod_failures.why_lost(at, pod, self._place.host, self._container, _DECIDING):
            return told
        if refused:
            return refused.text
        shown = "; ".join(said.splitlines()[-2:])
        return f"the connection to pod {pod} on {self._place.host} ended{f': {shown}' if shown else ''}"
