"""The common parts of all kinds of objects: names, labels, and the pod that a node is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_hetgpu.extensions.runtimes.pods.request import GPUS, RUNAI, Pods, Toleration, label
from pytest_hetgpu.model.job import Node

Manifest = dict[str, Any]

NAME, GROUP = "hetgpu.name", "hetgpu.group"
# sshd and programs that run as root need these. The pod drops all others, unless the matrix requests them.
KEPT = ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_CHROOT")
STOPPING = 5  # seconds between TERM and KILL
KEPT_AFTER = 600  # seconds that an object which has ended can still be read
_QUEUES = {RUNAI: "runai/queue", "kai-scheduler": "kai.scheduler/queue"}
KUEUE = "kueue.x-k8s.io/queue-name"
# In the form that kubectl takes; the group distinguishes kinds that several controllers have.
RESOURCES = {
    ("v1", "Service"): "services",
    ("batch/v1", "Job"): "jobs.batch",
    ("kubeflow.org/v2beta1", "MPIJob"): "mpijobs.kubeflow.org",
    ("kubeflow.org/v1", "PyTorchJob"): "pytorchjobs.kubeflow.org",
    ("batch.volcano.sh/v1alpha1", "Job"): "jobs.batch.volcano.sh",
}
_VOLCANOS_QUEUE = "scheduling.volcano.sh/queue-name"


@dataclass(frozen=True, slots=True)
class Group:
    """Pods of one template: `nodes` of one kind of hardware, called `name` among the groups of the placement."""

    name: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """The request for objects: `name` is their name, `marks` are the labels of the run; `groups` are never empty."""

    name: str
    marks: Mapping[str, str]
    groups: tuple[Group, ...]

    @property
    def pods(self) -> Pods:
        """Return the settings that all pods share: kind, namespace, scheduler and queue are those of the first pod."""
        return pods_of(self.groups[0].nodes[0])


def resource(manifest: Manifest) -> str:
    """Return kubectl's name for the kind of an object."""
    return RESOURCES[manifest["apiVersion"], manifest["kind"]]


def pods_of(node: Node) -> Pods:
    """Return the settings of a node that is a pod."""
    pods = node.hardware.settings
    assert isinstance(pods, Pods)
    return pods


def metadata(asked: Asked, name: str, pods: Pods) -> Manifest:
    """Return the metadata of an object: the marks as labels, and in full as annotations."""
    labels, annotations = _queue(pods, apart=True)
    found: Manifest = {"name": name}
    if pods.where:
        found["namespace"] = pods.where
    found["labels"] = {**pods.labels, **labels, **_ours(asked)}
    found["annotations"] = {**annotations, **asked.marks}
    return found


def template(asked: Asked, group: Group) -> Manifest:
    """Return the pod of a group: it waits until its deletion or the end of its time, without rights in the cluster."""
    pods = pods_of(group.nodes[0])
    labels, annotations = _queue(pods, apart=False)
    spec: Manifest = {
        "activeDeadlineSeconds": pods.ttl,
        "automountServiceAccountToken": False,
        "containers": [_container(pods)],
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        # The pause container reaps orphans. `sleep` is not process 1, so TERM ends it.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": STOPPING,
    }
    given = {
        "schedulerName": pods.scheduled_by,
        "priorityClassName": pods.priority_class,
        "serviceAccountName": pods.service_account,
        "nodeSelector": dict(pods.node_selector),
        "tolerations": [_toleration(one) for one in pods.tolerations],
        "imagePullSecrets": [{"name": name} for name in pods.image_pull_secrets],
        "volumes": _volumes(pods),
    }
    spec |= {key: value for key, value in given.items() if value}
    if pods.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    marked = {**pods.labels, **labels, **_ours(asked), GROUP: group.name}
    return {
        "metadata": {"labels": marked, "annotations": {**pods.annotations, **annotations, **asked.marks}},
        "spec": spec,
    }


def service(asked: Asked) -> Manifest:
    """Return a headless Service: names for all pods of a placement, also before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(asked, asked.name, Pods(namespace=asked.pods.where)),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {NAME: asked.name}},
    }


def limits(pods: Pods) -> dict[str, str]:
    """Return the resources that a pod gets; `0` of a resource leaves it out."""
    return {name: amount for name, amount in pods.resources.items() if amount != "0"}


def gpus(pods: Pods) -> str:
    """Return the number of GPUs of any make that a pod gets; "0" for none."""
    return next((amount for name, amount in limits(pods).items() if name in GPUS.values()), "0")


def groups_by_kind(nodes: Sequence[Node]) -> tuple[Group, ...]:
    """Return one group per kind of hardware, in the order of their first nodes."""
    names = list(dict.fromkeys(node.hardware.name for node in nodes))
    return tuple(
        Group(str(place), tuple(node for node in nodes if node.hardware.name == name))
        for place, name in enumerate(names)
    )


def _ours(asked: Asked) -> dict[str, str]:
    return {**{key: label(value) for key, value in asked.marks.items()}, NAME: asked.name}


def _queue(pods: Pods, *, apart: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations that name the queue: of a pod, or of the object for all pods (`apart`)."""
    if not pods.queued_in or pods.kind == "volcano":
        return {}, {}
    scheduler = pods.scheduled_by
    if scheduler == "volcano":
        return {}, {} if apart else {_VOLCANOS_QUEUE: pods.queued_in}
    if scheduler in _QUEUES:
        return {_QUEUES[scheduler]: pods.queued_in}, {}
    return {KUEUE: pods.queued_in} if apart else {}, {}


def _container(pods: Pods) -> Manifest:
    asked = limits(pods)
    found: Manifest = {
        "name": pods.container,
        "image": pods.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", str(pods.ttl)],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": sorted({*KEPT, *pods.capabilities}), "drop": ["ALL"]},
        },
    }
    if asked:
        found["resources"] = {"limits": asked, "requests": asked.copy()}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}] if pods.shm else []  # noqa: S108 - the folder of that name
    mounts += [{"name": f"claim{place}", "mountPath": path} for place, path in enumerate(pods.claims.values())]
    if mounts:
        found["volumeMounts"] = mounts
    return found


def _volumes(pods: Pods) -> list[Manifest]:
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(pods.shm)}}
    claims = [
        {"name": f"claim{place}", "persistentVolumeClaim": {"claimName": name}}
        for place, name in enumerate(pods.claims)
    ]
    return [*([shm] if pods.shm else []), *claims]


def _toleration(one: Toleration) -> Manifest:
    found: Manifest = {"operator": one.operator}
    given = {"key": one.key, "value": one.value, "effect": one.effect, "tolerationSeconds": one.seconds}
    return found | {key: value for key, value in given.items() if value not in ("", None)}
