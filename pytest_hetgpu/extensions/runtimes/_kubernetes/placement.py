"""The pods of one placement: their request, the wait for them, and their removal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.extensions.runtimes._kubernetes import client, leftovers, messages, pending_reasons, pod_failures
from pytest_hetgpu.extensions.runtimes._kubernetes.client import Object, Refused
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import Manifest, pods_of, resource
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.placement import (
    PodPosition,
    manifests,
    owned,
    places,
    rank_of,
    selector,
)
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.pods.request import object_name
from pytest_hetgpu.extensions.runtimes.process.ledger import LABEL, tracker
from pytest_hetgpu.model.job import Node

_FIRST_LOOK, _LONGEST_LOOK = 0.2, 5.0  # seconds between checks of pods that do not run yet
_SURE = 60.0  # seconds in which an autoscaler reports: it checks every 10 s, and may need a few checks
_WATCHING = 3.0  # seconds between checks of pods that run
_GIVING_BACK = 10.0  # seconds; the watchdog continues if the API server is away


@dataclass(frozen=True)
class PodSlot:
    """The location of a node: its pod, the address of the pod, and the host that it runs on."""

    pod: str
    address: str
    host: str


class Placement:
    """The pods of a placement, owned until `close`. `queued` are the seconds until all ran."""

    def __init__(self, nodes: Sequence[Node], deployment: Deployment) -> None:
        """Wait until the pods run.

        Raises:
            ProvisionError: They cannot run, or not in time.
            NotHere: The cluster lacks the kind of the main object.

        """
        self._label = ", ".join(dict.fromkeys(node.hardware.name for node in nodes))
        self._deployment = deployment
        self.pods = pods_of(nodes[0])
        self.name = object_name(deployment.name, deployment.token)
        self._positions = places(nodes)
        self._doubts: dict[str, float] = {}
        self._nodes: Sequence[Object] | None = None
        self._over = threading.Event()
        self._unanswered = False
        # The time of a pod runs from its own start. Other pods of the placement may start long after it.
        self.began = 0.0
        self._held: dict[str, Callable[[], None]] = {}
        self._asked: set[str] = set()
        try:
            self.cluster = client.cluster_of(self.pods)
        except Refused as refused:
            raise self._error(refused) from None
        marks = {**deployment.labels, **({LABEL: tracker().label} if tracker().label else {})}
        self._made = manifests(nodes, self.name, marks)
        self._resources = leftovers.resources(self._made)
        at = self.cluster
        spot = leftovers.namespace_spot(at.context, at.namespace, at.config, self._resources)
        self._struck = tracker().place(spot)
        try:
            asked = time.monotonic()
            self._create()
            patience = min(pods_of(node).ready for node in nodes)
            self.places = self._running(asked + patience, patience)
            self.queued = time.monotonic() - asked
            threading.Thread(target=self._watch, name=f"hetgpu {self.name}", daemon=True).start()
        except BaseException:
            self.close()
            raise

    def hold(self, pod: str, gone: Callable[[], None]) -> None:
        """Register `gone`, called once in another thread when a pod stops running or its node fails.

        Some kubelets do not end the streams of a pod with it.
        """
        self._held[pod] = gone

    def close(self) -> None:
        """Remove everything; a watchdog removes the rest later."""
        self._over.set()
        deadline = time.monotonic() + _GIVING_BACK
        while True:
            try:
                leftovers.remove(self.cluster, self._resources, selector(self.name))
            except Refused as refused:
                if not refused.refusal.away or time.monotonic() > deadline:
                    return
                time.sleep(0.5)
            else:
                # The server may still create objects of an unanswered request: the watchdog checks again.
                if not self._unanswered:
                    self._struck()
                return

    def _watch(self) -> None:
        while not self._over.wait(_WATCHING):
            try:
                pods = self.cluster.list("pods", "-l", selector(self.name))
            except Refused:
                continue  # the next request reports the error
            there = {one["metadata"]["name"]: one for one in pods if _counts(one) and _runs(one, self.pods.container)}
            for name in tuple(self._held):
                if name not in there:
                    self._gone(name)
                elif name not in self._asked and pod_failures.doubtful(there[name]):
                    self._asked.add(name)
                    threading.Thread(target=self._ask, args=(name,), name=f"hetgpu {name}", daemon=True).start()

    def _ask(self, name: str) -> None:
        """Check whether the node of a pod answers: no stream ends by itself when a host fails."""
        if pod_failures.silence(self.cluster, name, self.pods.container) and not self._over.is_set():
            self._gone(name)
        self._asked.discard(name)

    def _gone(self, name: str) -> None:
        if gone := self._held.pop(name, None):
            gone()

    def _create(self) -> None:
        main, *others = (self._where(one) for one in self._made)
        self._unanswered = True
        try:
            (made,) = self.cluster.create(main)
            if others:
                self.cluster.create(*(owned(one, made) for one in others))
        except Refused as refused:
            self._unanswered = refused.refusal.away
            raise self._error(refused) from None
        self._unanswered = False

    def _where(self, manifest: Manifest) -> Manifest:
        """Return a manifest in the namespace that was looked up, even if the context has changed since."""
        return {**manifest, "metadata": {**manifest["metadata"], "namespace": self.cluster.namespace}}

    def _running(self, deadline: float, patience: float) -> tuple[PodSlot, ...]:
        pause, why = _FIRST_LOOK, ""
        while True:
            try:
                pods = [one for one in self.cluster.list("pods", "-l", selector(self.name)) if _counts(one)]
                if not self.began and any(one.get("status", {}).get("startTime") for one in pods):
                    self.began = time.monotonic()
                if found := self._placed(pods):
                    return found
                why = self._look(pods)
            except Refused as refused:
                if not refused.refusal.away:
                    raise self._error(refused) from None
                why = str(refused)
            if self._deployment.abandoned.wait(min(pause, max(0.0, deadline - time.monotonic()))):
                raise ProvisionError(self._label, f"the pods of {self.name} were given up while they waited")
            if time.monotonic() >= deadline:
                raise ProvisionError(
                    self._label,
                    f"Kubernetes did not start {self.name} in {patience:g} s: {why}; "
                    "give `ready` of `kubernetes` more seconds where waiting may help",
                )
            pause = min(1.5 * pause, _LONGEST_LOOK)

    def _placed(self, pods: Sequence[Object]) -> tuple[PodSlot, ...]:
        """Return the slot of each node once all pods run; () before."""
        found = [_pod_at(position, pods) for position in self._positions]
        if any(one is None or not _runs(one, self.pods.container) for one in found):
            return ()
        return tuple(
            PodSlot(one["metadata"]["name"], one["status"]["podIP"], one["spec"]["nodeName"]) for one in found if one
        )

    def _look(self, pods: Sequence[Object]) -> str:
        """Return why some pods do not run; raise ProvisionError if they never will."""
        told = []
        for pod in pods:
            name = pod["metadata"]["name"]
            if _runs(pod, self.pods.container):
                continue
            if pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
                raise self._never(messages.ended(pod, self.cluster.events(name=name)) or f"pod {name} ended")
            why = pending_reasons.reason(pod, self.cluster.events(name=name), self._seen(pod))
            if self._sure(name, why):
                raise self._never(f"pod {name}: {why.text}")
            told.append(f"pod {name}: {why.text}")
        return told[0] if told else self._without_pods()

    def _sure(self, name: str, why: pending_reasons.Reason) -> bool:
        """Return whether a reason is final, or has lasted long enough to count as final."""
        if not why.soon:
            self._doubts.pop(name, None)
            return why.final
        return why.final or time.monotonic() - self._doubts.setdefault(name, time.monotonic()) > _SURE

    def _without_pods(self) -> str:
        """Return why there are too few pods. Raise as `_look`."""
        told = []
        for one in self._made:
            if one["kind"] == "Service":
                continue
            name = one["metadata"]["name"]
            main = self.cluster.get(resource(one), name)
            if _failed(main):
                raise self._never(f"{one['kind']} {name} failed: {pending_reasons.unstarted(main)}")
            if _has_all(main):
                continue
            if refused := pending_reasons.refused(self.cluster.events(name=name)):
                text = f"{one['kind']} {name} got no pods: {refused.text}"
                if self._sure(name, refused):
                    raise self._never(text)
                told.append(text)
            else:
                told.append(f"{one['kind']} {name} has too few pods: {pending_reasons.unstarted(main)}")
        return told[0] if told else "there are too few pods"

    def _seen(self, pod: Object) -> Sequence[Object] | None:
        """Return the cluster's nodes, looked up once, for a pod that waits for resources; () if access is denied."""
        if self._nodes is None and "Insufficient" in str(pod.get("status", {}).get("conditions")):
            try:
                self._nodes = self.cluster.list("nodes")
            except Refused:
                self._nodes = ()
        return self._nodes

    def _never(self, why: str) -> ProvisionError:
        return ProvisionError(self._label, f"Kubernetes can never start {self.name}: {why}")

    def _error(self, refused: Refused) -> NotHere | ProvisionError:
        return NotHere(str(refused)) if refused.refusal.absent else ProvisionError(self._label, str(refused))


def _counts(pod: Object) -> bool:
    """Return whether a pod is not about to be removed."""
    return not pod["metadata"].get("deletionTimestamp")


def _pod_at(position: PodPosition, pods: Sequence[Object]) -> Object | None:
    group = sorted(
        (one for one in pods if one["metadata"]["labels"].get("hetgpu.group") == position.group), key=rank_of
    )
    return group[position.position] if len(group) > position.position else None


def _runs(pod: Object, container: str) -> bool:
    """Return whether the container of a pod runs, and the pod has an address."""
    status = pod.get("status", {})
    states = {one["name"]: one.get("state", {}) for one in status.get("containerStatuses") or ()}
    return status.get("phase") == "Running" and "running" in states.get(container, {}) and bool(status.get("podIP"))


def _has_all(main: Object) -> bool:
    """Return whether a Job has created all its pods."""
    wanted = main.get("spec", {}).get("parallelism")
    return main.get("kind") == "Job" and wanted is not None and main.get("status", {}).get("active", 0) >= wanted


def _failed(main: Object) -> bool:
    conditions = main.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Failed" and one.get("status") == "True" for one in conditions)
