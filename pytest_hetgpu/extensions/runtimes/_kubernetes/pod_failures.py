"""What became of pods that ran: as the cluster has it, or as it shows before the cluster knows.

A cluster gives a node up after a time of grace, 40 s and more, and says nothing until then. Whether a node is there, a
command in one of its pods tells.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from pytest_hetgpu.extensions.runtimes._kubernetes import messages
from pytest_hetgpu.extensions.runtimes._kubernetes.client import KubernetesCluster, Object, Refused


class _Said(NamedTuple):
    """What a cluster says of a pod, "" for nothing, and whether it may yet say something else."""

    text: str
    open: bool


def why_lost(cluster: KubernetesCluster, name: str, host: str, container: str, patience: float) -> str:
    """Return what became of a pod that was ours, once the cluster reports something.

    If it reports nothing in time, say whether the node is there; "" if it is: nothing is known against the pod.
    """
    latest = time.monotonic() + patience
    while (said := _said(cluster, name)).open and time.monotonic() < latest:
        time.sleep(0.5)
    if said.text or not (why := silence(cluster, name, container)):
        return said.text
    return _said(cluster, name).text or messages.unreached(name, host, why)


def doubtful(pod: Object) -> bool:
    """Whether a pod that runs, as was last heard, is none that a cluster sends requests to.

    It takes pods out when their node is silent; but also for what an operator or a sidecar wants.
    """
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") != "True" for one in conditions)


def silence(cluster: KubernetesCluster, name: str, container: str) -> messages.Refusal | None:
    """How it showed that a pod's node is not there; None where it is, or something else is in the way.

    It takes some 30 s to know that of a node which does not even refuse.
    """
    try:
        cluster.ask("exec", name, "-c", container, "--", "true")
    except Refused as refused:
        # An API server that answers to the rest was waiting for the node.
        if refused.refusal.unreached or (refused.refusal.away and _there(cluster, name)):
            return refused.refusal
    return None


def _said(cluster: KubernetesCluster, name: str) -> _Said:
    try:
        pod = cluster.get("pod", name)
    except Refused as refused:
        if refused.refusal.missing:
            return _Said(messages.taken(name, cluster.events(name=name)), open=False)
        return _Said(str(refused), open=refused.refusal.away)
    told = messages.ended(pod, cluster.events(name=name))
    return _Said(told, open=not told)


def _there(cluster: KubernetesCluster, name: str) -> bool:
    try:
        cluster.get("pod", name)
    except Refused:
        return False
    return True
