"""The failures of pods that ran: from the cluster's record, or from earlier signs.

A cluster gives a node up after a grace period of 40 s or more, and reports nothing until then. A command in one of its
pods shows earlier whether the node answers.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from pytest_hetgpu.extensions.runtimes._kubernetes import messages
from pytest_hetgpu.extensions.runtimes._kubernetes.client import KubernetesCluster, Object, Refused


class _Said(NamedTuple):
    """The report of a cluster about a pod ("" for none), and whether the cluster may still change it."""

    text: str
    open: bool


def why_lost(cluster: KubernetesCluster, name: str, host: str, container: str, patience: float) -> str:
    """Return the failure of a lost pod, once the cluster reports one.

    If it reports none in time, return whether the node answers. Return "" if it does: there is no evidence against the
    pod.
    """
    latest = time.monotonic() + patience
    while (said := _said(cluster, name)).open and time.monotonic() < latest:
        time.sleep(0.5)
    if said.text or not (why := silence(cluster, name, container)):
        return said.text
    return _said(cluster, name).text or messages.unreached(name, host, why)


def doubtful(pod: Object) -> bool:
    """Return whether the cluster sends no requests to a pod that ran at its last report.

    A cluster stops requests to pods of a silent node. It also does so when an operator or a sidecar wants that.
    """
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") != "True" for one in conditions)


def silence(cluster: KubernetesCluster, name: str, container: str) -> messages.Refusal | None:
    """Return the evidence that a pod's node does not answer; None if it does, or after another error.

    A node that does not even refuse connections takes some 30 s.
    """
    try:
        cluster.ask("exec", name, "-c", container, "--", "true")
    except Refused as refused:
        # An API server that answers all other requests was waiting for the node.
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
