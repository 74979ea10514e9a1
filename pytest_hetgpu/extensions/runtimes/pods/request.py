"""The request to Kubernetes for nodes: one pod per node, and the names and labels of the objects. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

RUNAI = "runai-scheduler"
# The operators of Kubeflow have one template for all workers of a job.
UNIFORM = {"mpijob": "an MPIJob", "pytorchjob": "a PyTorchJob"}
KINDS = ("job", *UNIFORM, "volcano")
# The resource names of GPUs, from the device plugins of NVIDIA and AMD.
GPUS = {"cuda": "nvidia.com/gpu", "rocm": "amd.com/gpu"}
# Variables that operators set in pods; mpirun, torchrun and ranks would take them for their own.
INJECTED = {
    "pytorchjob": (
        *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES"),
        *("PET_NODE_RANK", "PET_NPROC_PER_NODE"),
    ),
    "mpijob": (
        *("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots"),
        "OMPI_MCA_plm_rsh_args",
    ),
}

# A Service has the same name (RFC 1035). Controllers append suffixes such as -worker-4095 and -0-17-x7k2p.
_LONGEST_NAME, _LONGEST_LABEL = 40, 63


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that the pods tolerate; empty fields are left out, `seconds` is None for ever."""

    key: str = ""
    operator: str = "Exists"
    value: str = ""
    effect: str = ""
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Pods:
    """One kind of node in a request to Kubernetes: empty fields leave the choice to the cluster.

    `kind` is the kind of the object that makes the pods (KINDS). `project` is a RunAI project: it sets namespace,
    scheduler and queue. `resources` are requests and limits alike, `shm` is in bytes, `claims` are volumes (PVC) and
    their mount paths. A node must be ready within `ready` seconds, and its pod ends by itself after `ttl` seconds.
    """

    kind: str = "job"
    image: str = ""
    namespace: str = ""
    context: str = ""
    project: str = ""
    queue: str = ""
    scheduler: str = ""
    priority_class: str = ""
    service_account: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    capabilities: tuple[str, ...] = ()
    shm: int | None = None
    claims: Mapping[str, str] = field(default_factory=dict)
    host_network: bool = False
    image_pull_secrets: tuple[str, ...] = ()
    ready: float = 600.0
    ttl: int = 3600

    stored_as: ClassVar[str] = "pods"

    @property
    def where(self) -> str:
        """Return the namespace, by default that of the RunAI project; "" is that of the context."""
        return self.namespace or (f"runai-{self.project}" if self.project else "")

    @property
    def scheduled_by(self) -> str:
        """Return the scheduler's name; "" is the cluster's default."""
        return self.scheduler or (RUNAI if self.project else "volcano" if self.kind == "volcano" else "")

    @property
    def queued_in(self) -> str:
        """Return the queue; RunAI has one by the name of each project."""
        return self.queue or self.project

    @property
    def container(self) -> str:
        """Return the name of the container of a pod: the operator of PyTorchJobs finds it by that name alone."""
        return "pytorch" if self.kind == "pytorchjob" else "main"


def quarrel(kinds: Sequence[tuple[str, Pods]], *, launcher: bool = False) -> str:
    """Return why hardware (by name) cannot be pods of one placement, and advice; "" if it can.

    `launcher`: the last is a node without ranks, for which an MPIJob has a template of its own.
    """
    for place, (name, pods) in enumerate(kinds):
        first, other = kinds[0]
        for what, one, two in (
            ("kind", other.kind, pods.kind),
            ("namespace", other.where, pods.where),
            ("context", other.context, pods.context),
            ("scheduler", other.scheduled_by, pods.scheduled_by),
            ("queue", other.queued_in, pods.queued_in),
        ):
            if one != two:
                said = f"{first} has the {what} {one or '(none)'}, {name} {two or '(none)'}"
                return f"{said}: pods of one placement need one {what}"
        alone = launcher and pods.kind == "mpijob" and place == len(kinds) - 1
        if name != first and pods.kind in UNIFORM and not alone:
            return (
                f"{UNIFORM[pods.kind]} has one template for all its workers, and {first} and {name} are two: give both "
                "`kind: job` (a Job for each) or `kind: volcano` (a task for each)"
            )
    return ""


def label(text: str) -> str:
    """Convert a text to the value of a label: a valid text as it is, else its valid part with a digest."""
    if re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", text, re.ASCII):
        return text
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("_.-")[: _LONGEST_LABEL - 9]
    return f"{plain}-{_digest(text)}".lstrip("-")


def object_name(placement: str, token: str = "") -> str:
    """Return the name of a placement's pods: `hetgpu-aws-mixed`, with a token if several may exist at a time."""
    plain = re.sub(r"[^a-z0-9]+", "-", placement.lower()).strip("-")
    room = _LONGEST_NAME - len("hetgpu--") - len(token)
    if plain != placement or not 0 < len(plain) <= room:
        plain = f"{plain[: room - 9].strip('-')}-{_digest(placement)}".strip("-")
    return "-".join(filter(None, ("hetgpu", plain, token)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
