"""The objects that Kubernetes makes pods from, held against strict schemas of its API."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import KEPT
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.placement import (
    manifests,
    owned,
    places,
    rank_of,
    selector,
)
from pytest_hetgpu.model.job import Hardware, Node
from pytest_hetgpu.model.kubernetes import KINDS, UNIFORM, Pods, Toleration, object_name
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs
from pytest_hetgpu.store.encode import from_json, to_json
from tests.extensions.runtimes.manifest_schemas import schemas, wrong

ROOT = Path(__file__).resolve().parents[3]
NAME = "hetgpu-demo-two"
MARKS = {"hetgpu.run": "r1", "hetgpu.owner": "me@host:17", "hetgpu.placement": "demo-two"}
FULL: dict[str, Any] = {
    "image": "registry.local/cuda:1@sha256:" + "0" * 64,
    "namespace": "gpu-tests",
    "queue": "fast",
    "priority_class": "high",
    "service_account": "runner",
    "resources": {"nvidia.com/gpu": "2", "rdma/hca_shared_devices_a": "1", "cpu": "500m", "memory": "1.5Gi"},
    "annotations": {"k8s.v1.cni.cncf.io/networks": "kube-system/roce"},
    "labels": {"team": "mpi"},
    "node_selector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
    "tolerations": (Toleration("gpu", effect="NoExecute", seconds=30), Toleration("k", "Equal", "v"), Toleration()),
    "capabilities": ("IPC_LOCK",),
    "shm": 1 << 30,
    "claims": {"scratch": "/scratch"},
    "host_network": True,
    "image_pull_secrets": ("registry",),
}


def node(index: int, name: str, pods: Pods, ranks: int = 1) -> Node:
    return Node(index, Hardware(name, runtime="kubernetes", pods=pods), f"node{index}", ranks)


def made(kind: str, *names: str, **settings: Any) -> list[dict[str, Any]]:
    pods = Pods(**{"kind": kind, "image": "i:1", **settings})
    return manifests([node(index, name, pods) for index, name in enumerate(names)], NAME, MARKS)


def templates(found: object) -> Iterator[dict[str, Any]]:
    """Every pod in there."""
    if isinstance(found, dict):
        if "template" in found:
            yield found["template"]
        for value in found.values():
            yield from templates(value)
    elif isinstance(found, list):
        for value in found:
            yield from templates(value)


def test_the_schemas_are_schemas_and_leave_no_map_open() -> None:
    def maps(schema: object) -> Iterator[Mapping[str, Any]]:
        if isinstance(schema, dict):
            if schema.get("type") == "object":
                yield schema
            for value in schema.values():
                yield from maps(value)
        elif isinstance(schema, list):
            for value in schema:
                yield from maps(value)

    Draft202012Validator.check_schema({"$defs": schemas()["$defs"]})
    assert len(list(maps(schemas()))) > 30
    assert [one for one in maps(schemas()) if "additionalProperties" not in one] == []


@pytest.mark.parametrize("settings", [{}, FULL, {"project": "team"}, {"scheduler": "volcano", "queue": "q"}])
@pytest.mark.parametrize("names", [("a",), ("a", "a", "a")])
@pytest.mark.parametrize("kind", KINDS)
def test_every_object_is_as_the_api_has_it(kind: str, names: tuple[str, ...], settings: dict[str, Any]) -> None:
    found = made(kind, *names, **settings)
    assert [wrong(one) for one in found] == [[] for _ in found]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in UNIFORM])
def test_a_mixed_placement_has_a_template_for_each_kind_of_hardware(kind: str) -> None:
    cuda = Pods(kind=kind, image="cuda:1", resources={"nvidia.com/gpu": "1"})
    rocm = Pods(kind=kind, image="rocm:1", resources={"amd.com/gpu": "1"})
    nodes = [node(0, "h200", cuda), node(1, "mi250x", rocm), node(2, "h200", cuda)]
    found = manifests(nodes, NAME, MARKS)
    assert [wrong(one) for one in found] == [[] for _ in found]
    images = [pod["spec"]["containers"][0]["image"] for pod in templates(found)]
    assert images == ["cuda:1", "rocm:1"]
    assert [(place.group, place.position) for place in places(nodes)] == [("0", 0), ("1", 0), ("0", 1)]
    service = found[-1]
    assert service["spec"]["selector"] == {"hetgpu.name": NAME}
    assert {pod["metadata"]["labels"]["hetgpu.name"] for pod in templates(found)} == {NAME}


def test_a_job_for_each_kind_has_its_number_of_pods() -> None:
    first, second, _ = made("job", "a", "b", "a")
    assert [(one["metadata"]["name"], one["spec"]["parallelism"]) for one in (first, second)] == [
        (f"{NAME}-0", 2),
        (f"{NAME}-1", 1),
    ]


def test_volcano_schedules_all_or_nothing() -> None:
    job, _ = made("volcano", "a", "b", "a", queue="q")
    assert job["spec"]["minAvailable"] == 3
    assert [task["replicas"] for task in job["spec"]["tasks"]] == [2, 1]
    assert (job["spec"]["queue"], job["spec"]["schedulerName"]) == ("q", "volcano")


def test_all_nodes_with_ranks_are_workers_of_an_mpijob() -> None:
    pods = Pods(kind="mpijob", image="i:1", resources={"nvidia.com/gpu": "1"})
    (found,) = manifests([node(0, "a", pods, 4), node(1, "a", pods, 4)], NAME, MARKS)
    launcher, worker = (found["spec"]["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
    assert (launcher["replicas"], worker["replicas"], found["spec"]["slotsPerWorker"]) == (1, 2, 4)
    # It waits: nothing is asked for it that only ranks need.
    assert "resources" not in launcher["template"]["spec"]["containers"][0]
    assert "resources" in worker["template"]["spec"]["containers"][0]


def test_a_launcher_without_ranks_is_the_launcher_of_an_mpijob() -> None:
    worker, control = Pods(kind="mpijob", image="w:1"), Pods(kind="mpijob", image="l:1", resources={"cpu": "1"})
    nodes = [node(0, "w", worker), node(1, "w", worker), node(2, "l", control, 0)]
    (found,) = manifests(nodes, NAME, MARKS)
    assert wrong(found) == []
    launcher = found["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert (launcher["image"], launcher["resources"]["limits"]) == ("l:1", {"cpu": "1"})
    assert [place.group for place in places(nodes)] == ["worker", "worker", "launcher"]


def test_the_first_node_is_the_master_of_a_pytorchjob() -> None:
    (alone,) = made("pytorchjob", "a")
    assert list(alone["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    (found,) = made("pytorchjob", "a", "a", "a")
    assert {name: one["replicas"] for name, one in found["spec"]["pytorchReplicaSpecs"].items()} == {
        "Master": 1,
        "Worker": 2,
    }
    assert {pod["spec"]["containers"][0]["name"] for pod in templates(found)} == {"pytorch"}


@pytest.mark.parametrize("settings", [{}, FULL])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_has_no_more_rights_than_were_asked_for(kind: str, settings: dict[str, Any]) -> None:
    pods = list(templates(made(kind, "a", "a", **settings)))
    assert pods
    for pod in pods:
        spec, container = pod["spec"], pod["spec"]["containers"][0]
        assert spec["automountServiceAccountToken"] is False
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        added = set(security["capabilities"].get("add", ()))
        assert added <= {*KEPT, *settings.get("capabilities", ())}
        assert security["capabilities"]["drop"] == ["ALL"]
        assert not {"hostPID", "hostIPC", "hostPath", "privileged"} & set(repr(pod).split("'"))
        assert spec.get("hostNetwork", False) is settings.get("host_network", False)


def test_without_more_being_asked_for_the_level_baseline_admits_a_pod() -> None:
    # https://kubernetes.io/docs/concepts/security/pod-security-standards/
    allowed = "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID"
    assert set(KEPT) <= {*allowed.split(), "SYS_CHROOT"}


@pytest.mark.parametrize("kind", KINDS)
def test_everything_ends_by_itself(kind: str) -> None:
    found = made(kind, "a", "a", ttl=600, ready=60.0)
    for pod in templates(found):
        assert pod["spec"]["activeDeadlineSeconds"] == 600
        assert pod["spec"]["containers"][0]["command"] == ["sleep", "600"]
        assert pod["spec"]["restartPolicy"] == "Never"
    spec = found[0]["spec"]
    assert (spec.get("runPolicy") or spec)["ttlSecondsAfterFinished"] > 0
    if kind != "volcano":
        assert (spec.get("runPolicy") or spec)["activeDeadlineSeconds"] == 660


@pytest.mark.parametrize("kind", KINDS)
def test_everything_says_whose_it_is(kind: str) -> None:
    found = made(kind, "a", "a")
    for one in (*found, *templates(found)):
        assert MARKS.items() <= one["metadata"]["annotations"].items()
        assert one["metadata"]["labels"]["hetgpu.run"] == "r1"
        assert one["metadata"]["labels"]["hetgpu.owner"].startswith("me-host-17-")


def test_a_dependent_object_goes_with_the_main_one() -> None:
    main, *others = made("job", "a", "b")
    there = {**main, "metadata": {**main["metadata"], "uid": "u-1"}}
    for one in (owned(other, there) for other in others):
        assert wrong(one) == []
        (owner,) = one["metadata"]["ownerReferences"]
        assert owner == {"apiVersion": "batch/v1", "kind": "Job", "name": f"{NAME}-0", "uid": "u-1"}
    assert "ownerReferences" not in others[0]["metadata"]


@pytest.mark.parametrize(
    ("settings", "on_object", "on_pod"),
    [
        ({"project": "team"}, {"runai/queue": "team"}, {"runai/queue": "team"}),
        ({"project": "team", "queue": "q"}, {"runai/queue": "q"}, {"runai/queue": "q"}),
        ({"scheduler": "kai-scheduler", "queue": "q"}, {"kai.scheduler/queue": "q"}, {"kai.scheduler/queue": "q"}),
        # Kueue takes whole jobs.
        ({"queue": "q"}, {"kueue.x-k8s.io/queue-name": "q"}, {}),
        ({}, {}, {}),
    ],
)
def test_a_queue_is_called_as_its_scheduler_calls_it(
    settings: dict[str, Any], on_object: dict[str, str], on_pod: dict[str, str]
) -> None:
    job, service = made("job", "a", **settings)
    assert on_object.items() <= job["metadata"]["labels"].items()
    (pod,) = templates(job)
    for labels, wanted in ((job["metadata"]["labels"], on_object), (pod["metadata"]["labels"], on_pod)):
        assert {key: value for key, value in labels.items() if "queue" in key} == wanted
    assert pod["spec"].get("schedulerName", "") == Pods(**settings).scheduled_by
    assert not [key for key in service["metadata"]["labels"] if "queue" in key]


def test_nothing_of_a_resource_is_not_asked_for() -> None:
    job, _ = made("job", "a", resources={"nvidia.com/gpu": "0"})
    assert "resources" not in next(templates(job))["spec"]["containers"][0]


def test_pods_are_found_by_their_labels() -> None:
    assert selector(NAME) == f"hetgpu.name={NAME}"
    assert selector(NAME, "0") == f"hetgpu.name={NAME},hetgpu.group=0"


def test_pods_of_a_group_have_an_order() -> None:
    index = "batch.kubernetes.io/job-completion-index"
    pods: list[dict[str, Any]] = [
        {"metadata": {"name": "a", "annotations": {index: "10"}}},
        {"metadata": {"name": "b", "labels": {"training.kubeflow.org/replica-index": "2"}}},
        {"metadata": {"name": "d"}},
        {"metadata": {"name": "c", "labels": {index: "x"}}},
    ]
    assert [rank_of(pod)[1] for pod in sorted(pods, key=rank_of)] == ["c", "d", "b", "a"]


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        # The CRD's own schema takes any text here; the operator then refuses the job.
        ("mpijob", ("spec", "runPolicy", "cleanPodPolicy"), "Bogus"),
        ("mpijob", ("spec", "mpiImplementation"), "openmpi"),
        ("mpijob", ("spec", "mpiReplicaSpecs", "Worker", "replicas"), 0),
        ("mpijob", ("spec", "mpiReplicaSpecs", "worker"), {}),
        ("pytorchjob", ("spec", "pytorchReplicaSpecs", "Worker", "restartPolicy"), "Sometimes"),
        ("pytorchjob", ("spec", "runpolicy"), {}),
        ("job", ("spec", "completionMode"), "indexed"),
        ("job", ("spec", "template", "spec", "hostPID"), True),
        ("job", ("spec", "template", "spec", "containers", 0, "securityContext", "privileged"), True),
        ("job", ("metadata", "name"), "A_b"),
        ("job", ("metadata", "labels", "x"), "a b"),
        ("volcano", ("spec", "policies", 0, "action"), "Abort"),
        ("volcano", ("spec", "minAvailable"), "2"),
    ],
)
def test_the_schemas_take_nothing_else(kind: str, path: tuple[str | int, ...], value: object) -> None:
    bad: Any = copy.deepcopy(made(kind, "a", "a")[0])
    assert wrong(bad) == []
    inner = bad
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    assert wrong(bad)


@pytest.mark.parametrize("name", ["kubernetes", "runai"])
def test_the_matrices_that_are_shipped_ask_for_what_the_api_takes(name: str) -> None:
    file = ROOT / "matrices" / f"{name}.yaml"
    beside = RunInputs(file.with_name(f"{name}.hosts.yaml"))
    suite = MatrixSet.load([file], ROOT, timeout=60, environ={}, inputs=beside)
    jobs = {job.axes["placement"]: job for job in map(suite.job, suite.scenarios)}
    assert jobs
    for placement, job in jobs.items():
        found = manifests(job.all_nodes, object_name(placement), MARKS)
        assert [wrong(one) for one in found] == [[] for _ in found]


def test_what_pods_are_asked_for_stays_in_the_record_of_a_job() -> None:
    kind = Hardware("a", runtime="kubernetes", pods=Pods(**FULL))
    assert from_json(Hardware, json.loads(json.dumps(to_json(kind)))) == kind
