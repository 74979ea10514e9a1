"""The schema of a request to Kubernetes: for a kind of hardware in a matrix, and for a site in an inventory."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pytest_hetgpu.extensions.runtimes.pods.request import KINDS, Pods, Toleration
from pytest_hetgpu.extensions.shapes import Bytes, Form, Prefix, Shape
from pytest_hetgpu.model.messages import known, show

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and .../labels/
_PLAIN = Field(json_schema_extra={"type": ["string", "number", "boolean"]})
Dns = Annotated[
    str,
    Form(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "be a name as Kubernetes takes it: at most 63 of a-z, 0-9 and -, no - first or last",
    ),
    _PLAIN,
]
Subdomain = Annotated[
    str,
    Form(
        r"^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$",
        "be a name as Kubernetes takes it: a-z, 0-9, - and ., no - or . first or last",
    ),
    _PLAIN,
]
Queue = Annotated[Subdomain, Form(r"^.{1,63}$", "have at most 63 characters, as the value of a label")]
# The namespace of a project is runai-PROJECT.
Project = Annotated[Dns, Form(r"^.{1,57}$", "have at most 57 characters, as the namespace is runai-PROJECT")]
LABEL = Form(
    r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$",
    "be the value of a label: at most 63 letters, digits and _ . -, the first and last a letter or digit",
)
Label = Annotated[str, LABEL, _PLAIN]
Key = Annotated[
    str,
    Form(
        r"^((?=[^/]{1,253}/)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*/)?"
        r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        "be a key as Kubernetes takes it: NAME or DOMAIN/NAME",
    ),
]
# The user chooses the name of a context in a kubeconfig; the name becomes an argument.
Context = Annotated[str, Form(r"^[A-Za-z0-9_][A-Za-z0-9_.:/@+-]*$", "start with a letter or digit and hold no spaces")]
Quantity = Annotated[
    str,
    Form(
        r"^([0-9]{1,15}|[0-9]{1,12}\.[0-9]{1,3})([KMGTPE]i|[mkMGTPE])?$",
        "be a quantity as Kubernetes takes it: 1, 500m, 16Gi",
    ),
    _PLAIN,
]
Annotation = Annotated[
    str,
    # No character that terminals or shells interpret, and none that YAML cannot write.
    Form(
        "^[^\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufeff\\ufffe\\uffff]"
        "{0,65536}$",
        "be one line without control characters (YAML folds lines behind `>-`)",
    ),
    _PLAIN,
]
Mount = Annotated[str, Form(r"^(/[A-Za-z0-9_.+@=-]+)+$", "be an absolute path: /scratch")]
Capability = Annotated[
    str,
    Form(r"^(?!CAP_)[A-Z][A-Z0-9_]{0,30}$", "be a capability without CAP_: IPC_LOCK, SYS_PTRACE"),
]
_IMAGE = Form(
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?$",
    "be a reference that the cluster can pull: REGISTRY/NAME:TAG or NAME@sha256:...",
)


def _kind(value: str | None) -> str | None:
    if value is not None and value not in KINDS:
        raise ValueError(f"{show(value)} makes no pods {known(value, KINDS)}")
    return value


def _not_ours(keys: dict[str, str]) -> dict[str, str]:
    if taken := next((key for key in keys if key.startswith("hetgpu.")), None):
        raise ValueError(f"{show(taken)} is a key of ours: no other may begin with hetgpu.")
    return keys


def _several(value: Any) -> Any:
    return [value] if isinstance(value, (str, dict)) else value


def _resources(found: dict[str, str]) -> dict[str, str]:
    for name, amount in found.items():
        if "/" in name and not amount.isdecimal():
            raise ValueError(f"{show(name)} is given out as a whole: {show(amount)} must be a number like 1")
        if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
            near = " (for GPUs nvidia.com/gpu or amd.com/gpu)" if "gpu" in name.lower() else ""
            raise ValueError(
                f"unknown resource {show(name)}{near}: give {', '.join(_STANDARD)}, hugepages-SIZE or DOMAIN/NAME"
            )
    return found


def _amount(value: str) -> str:
    """Return an amount in the form of requests: `0` requests nothing."""
    return "0" if not value.strip("0.") else value


_STANDARD = ("cpu", "memory", "ephemeral-storage")
Resources = Annotated[dict[Key, Annotated[Quantity, AfterValidator(_amount)]], AfterValidator(_resources)]
Labels = Annotated[dict[Key, Label], AfterValidator(_not_ours)]
Annotations = Annotated[dict[Key, Annotation], AfterValidator(_not_ours)]


class TolerationShape(Shape):
    """A taint of nodes that the pods tolerate."""

    key: Key | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: Label = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: Annotated[int | None, Field(ge=0, le=2**31 - 1, description="how long, for NoExecute")] = None

    @model_validator(mode="after")
    def _whole(self) -> TolerationShape:
        if self.operator == "Exists" and self.value:
            raise ValueError("operator Exists takes no value: leave out one of them")
        if not self.key and (self.value or self.operator == "Equal"):
            raise ValueError("a value needs its key")
        if self.seconds is not None and self.effect != "NoExecute":
            raise ValueError("seconds are for effect NoExecute alone")
        return self

    def toleration(self) -> Toleration:
        """Return the value object; a value means Equal."""
        operator = self.operator or ("Equal" if self.value else "Exists")
        return Toleration(self.key or "", operator, self.value, self.effect or "", self.seconds)


_MERGED = ("resources", "annotations", "labels", "node_selector", "claims")


class PodsShape(Shape):
    """The request to Kubernetes for a node of this kind."""

    kind: Annotated[
        str | None,
        AfterValidator(_kind),
        Field(description="what makes the pods", json_schema_extra={"enum": [*KINDS, None]}),
    ] = None
    namespace: Dns | None = None
    context: Annotated[Context | None, Field(description="of the kubeconfig; without, its current one")] = None
    project: Annotated[Project | None, Field(description="RunAI's: stands for its namespace, scheduler and queue")] = (
        None
    )
    queue: Annotated[Queue | None, Field(description="of RunAI, KAI, Volcano or Kueue")] = None
    scheduler: Subdomain | None = None
    priority_class: Subdomain | None = None
    service_account: Subdomain | None = None
    resources: Annotated[
        Resources | None, Field(description="requests and limits alike: {nvidia.com/gpu: 1, rdma/rdma: 1}")
    ] = None
    annotations: Annotations | None = None
    labels: Labels | None = None
    node_selector: dict[Key, Label] | None = None
    tolerations: Annotated[
        tuple[TolerationShape, ...] | None,
        BeforeValidator(_several, json_schema_input_type=TolerationShape | list[TolerationShape]),
    ] = None
    capabilities: Annotated[
        tuple[Capability, ...] | None, BeforeValidator(_several, json_schema_input_type=Capability | list[Capability])
    ] = None
    shm: Annotated[Bytes | None, Field(description="size of /dev/shm, which is memory of the pod")] = None
    claims: Annotated[
        dict[Subdomain, Mount] | None, Field(description="volumes: names of PersistentVolumeClaims, and their folders")
    ] = None
    host_network: bool | None = None
    image_pull_secrets: Annotated[
        tuple[Subdomain, ...] | None, BeforeValidator(_several, json_schema_input_type=Subdomain | list[Subdomain])
    ] = None
    ready: Annotated[float | None, Field(gt=0, le=604800, description="seconds in which the pods must run")] = None
    ttl: Annotated[int | None, Field(ge=60, le=604800, description="seconds after which a pod ends by itself")] = None

    def over(self, pods: Pods) -> Pods:
        """Return the settings with the given keys replaced by these; maps are merged key by key."""
        given = {name: value for name in self.model_fields_set if (value := getattr(self, name)) is not None}
        given.pop("prefix", None)
        for name in _MERGED:
            if name in given:
                given[name] = {**getattr(pods, name), **given[name]}
        if "tolerations" in given:
            given["tolerations"] = tuple(one.toleration() for one in given["tolerations"])
        return replace(pods, **given)


def reference(image: str) -> str:
    """Return an image that a cluster can pull; raise ValueError for a folder, or anything else."""
    if image.startswith(("containers/", "/", ".")):
        raise ValueError(f"a cluster cannot build {show(image)}: build it, push it, and give its reference")
    return _IMAGE.check(image)


class PodsSite(PodsShape):
    """The Kubernetes request of a site, which overrides that of the matrix; `prefix` is the image's folder of MPI."""

    image: Annotated[str, AfterValidator(reference)] | None = None
    prefix: Prefix | None = None
