"""What a matrix may say of its pods, and what it is told that Kubernetes would not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_hetgpu.config.matrix.hardware import HardwareShape, shape_of
from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.extensions.runtimes.pods.request import Pods, Toleration

BASE = """\
name: t
hardware:
  a: {runtime: kubernetes, image: "r/a:1", kubernetes: {A}}
  b:
    runtime: kubernetes
    image: "r/b:1"
    kubernetes: {B}
axes:
  placement:
    two: [a, a]
    other: {nodes: NODES}
  transport: {ob1: {family: ob1}}
  workload: {allreduce: {sizes: 8}}
"""


@pytest.fixture
def told(reads: Callable[..., Matrix]) -> Callable[..., list[str]]:
    def matrix_errors(a: str = "", b: str = "", nodes: str = "[a]") -> list[str]:
        text = BASE.replace("{A}", f"{{{a}}}").replace("{B}", f"{{{b}}}").replace("NODES", nodes)
        try:
            reads(text)
        except MatrixError as error:
            return list(error.errors)
        return []

    return matrix_errors


def pods(platform: str = "cpu", count: int = 1, **settings: Any) -> Pods:
    entry = {"runtime": "kubernetes", "image": "r/x:1", "platform": platform, "count": count, "kubernetes": settings}
    found = shape_of(entry).model_validate(entry).hardware("a").settings
    assert isinstance(found, Pods)
    return found


def test_what_is_said_becomes_what_is_asked_for() -> None:
    assert pods() == Pods(image="r/x:1")
    assert pods(kind=None) == Pods(image="r/x:1")
    found = pods(
        kind="volcano",
        resources={"cpu": "2", "rdma/rdma": "1"},
        tolerations={"key": "gpu", "value": "yes"},
        capabilities="IPC_LOCK",
        image_pull_secrets="registry",
        shm="1G",
        ready="60",
        ttl="600",
        host_network="true",
    )
    assert found == Pods(
        kind="volcano",
        image="r/x:1",
        resources={"cpu": "2", "rdma/rdma": "1"},
        tolerations=(Toleration("gpu", "Equal", "yes"),),
        capabilities=("IPC_LOCK",),
        image_pull_secrets=("registry",),
        shm=1 << 30,
        ready=60.0,
        ttl=600,
        host_network=True,
    )


def test_a_platforms_gpus_are_asked_for_unless_something_else_is_said() -> None:
    assert pods("cuda", 8).resources == {"nvidia.com/gpu": "8"}
    assert pods("rocm", resources={"cpu": "1"}).resources == {"amd.com/gpu": "1", "cpu": "1"}
    assert pods("rocm", resources={"amd.com/gpu": "0.0"}).resources == {"amd.com/gpu": "0"}
    assert pods(tolerations=[{}]).tolerations == (Toleration(),)


def test_a_pod_needs_an_image_that_a_cluster_can_pull() -> None:
    for image, says in (
        (None, "runtime kubernetes needs an image: a reference that the cluster can pull"),
        (
            "containers/roce",
            "image: a cluster cannot build 'containers/roce': build it, push it, and give its reference",
        ),
        ("r/x;y", "'r/x;y' must be a reference that the cluster can pull"),
    ):
        with pytest.raises(ValidationError) as caught:
            HardwareShape.model_validate({"runtime": "kubernetes", "image": image})
        assert says in str(caught.value)
    with pytest.raises(ValidationError, match="'kubernetes' is for runtime kubernetes; this is runtime local"):
        shape_of({"kubernetes": {}}).model_validate({"kubernetes": {}})


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("kind: jobb", "kind: 'jobb' makes no pods (known: job, mpijob, pytorchjob, volcano; did you mean 'job'?)"),
        ("resources: {cpu: lots}", "resources.cpu: 'lots' must be a quantity as Kubernetes takes it: 1, 500m, 16Gi"),
        (
            "resources: {gpu: 1}",
            "resources: unknown resource 'gpu' (for GPUs nvidia.com/gpu or amd.com/gpu): "
            "give cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME",
        ),
        (
            "resources: {nvidia.com/gpu: 0.5}",
            "resources: 'nvidia.com/gpu' is given out as a whole: '0.5' must be a number like 1",
        ),
        (
            "labels: {x: 'a b'}",
            "labels.x: 'a b' must be the value of a label: "
            "at most 63 letters, digits and _ . -, the first and last a letter or digit",
        ),
        ("labels: {hetgpu.run: x}", "labels: 'hetgpu.run' is a key of ours: no other may begin with hetgpu."),
        (
            "labels: {a b/c: x}",
            "labels: 'a b/c' must be a key as Kubernetes takes it: NAME or DOMAIN/NAME",
        ),
        (
            "namespace: My_NS",
            "namespace: 'My_NS' must be a name as Kubernetes takes it: "
            "at most 63 of a-z, 0-9 and -, no - first or last",
        ),
        (
            r'annotations: {k: "a\nb"}',
            "annotations.k: 'a\\nb' must be one line without control characters (YAML folds lines behind `>-`)",
        ),
        (
            "capabilities: CAP_IPC_LOCK",
            "capabilities: 'CAP_IPC_LOCK' must be a capability without CAP_: IPC_LOCK, SYS_PTRACE",
        ),
        (
            "tolerations: {operator: Exists, key: a, value: b}",
            "tolerations: operator Exists takes no value: leave out one of them",
        ),
        ("tolerations: {operator: Equal}", "tolerations: a value needs its key"),
        ("tolerations: {seconds: 3}", "tolerations: seconds are for effect NoExecute alone"),
        ("ttl: 5", "ttl must be at least 60, not '5'"),
        ("host_network: 7", "host_network must be true or false, not '7'"),
        ("claims: {x: data}", "claims.x: 'data' must be an absolute path: /scratch"),
        (
            "context: --kubeconfig=x",
            "context: '--kubeconfig=x' must start with a letter or digit and hold no spaces",
        ),
    ],
)
def test_what_kubernetes_would_not_take_is_said_with_its_line(
    told: Callable[..., list[str]], entry: str, says: str
) -> None:
    assert told(b=entry) == [f"m.yaml:7: hardware.b.kubernetes.{says}"]


def test_a_misspelt_key_is_said_with_those_that_there_are(told: Callable[..., list[str]]) -> None:
    (error,) = told(b="namespce: a")
    assert error.startswith("m.yaml:7: unknown key 'namespce' in hardware.b.kubernetes (known: annotations, ")
    assert error.endswith("did you mean 'namespace'?)")


@pytest.mark.parametrize(("kind", "what"), [("mpijob", "an MPIJob"), ("pytorchjob", "a PyTorchJob")])
def test_a_mixed_placement_of_one_template_is_said_with_its_line(
    told: Callable[..., list[str]], kind: str, what: str
) -> None:
    assert told(f"kind: {kind}", f"kind: {kind}", "[a, b]") == [
        f"m.yaml:11: placement other: {what} has one template for all its workers, and a and b are two: "
        "give both `kind: job` (a Job for each) or `kind: volcano` (a task for each)"
    ]


def test_a_launcher_may_be_of_another_kind_under_mpijob(told: Callable[..., list[str]]) -> None:
    assert told("kind: mpijob", "kind: mpijob", "[a, a], launch_from: b") == []
    assert "one template" in told("kind: pytorchjob", "kind: pytorchjob", "[a, a], launch_from: b")[0]


def test_pods_that_nothing_makes_together_are_said_with_the_line_of_their_placement(
    told: Callable[..., list[str]],
) -> None:
    assert told("kind: job", "kind: volcano", "[a, b]") == [
        "m.yaml:11: placement other: a has the kind job, b volcano: pods of one placement need one kind"
    ]
    assert told("namespace: n", "", "[a, b]") == [
        "m.yaml:11: placement other: a has the namespace n, b (none): pods of one placement need one namespace"
    ]


def test_an_include_may_not_define_such_a_placement_either(reads: Callable[..., Matrix]) -> None:
    text = BASE.replace("{A}", "{kind: mpijob}").replace("{B}", "{kind: mpijob}").replace("NODES", "[a]")
    include = "include:\n  - {placement: {name: mixed, nodes: [a, b]}, transport: ob1, workload: allreduce}\n"
    with pytest.raises(MatrixError, match=r"m.yaml:15: placement mixed: an MPIJob has one template"):
        reads(text + include)
