"""Kinds that operators bring, as a real API server takes them, and one operator that makes their pods.

The definitions check nothing: what the manifests hold is tested against schemas elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster

# Kind, its plural, group, version, and where its templates are.
KINDS = (
    ("MPIJob", "mpijobs", "kubeflow.org", "v2beta1"),
    ("PyTorchJob", "pytorchjobs", "kubeflow.org", "v1"),
    ("Job", "jobs", "batch.volcano.sh", "v1alpha1"),
)
_SPECS = {"MPIJob": "mpiReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs"}
# What the operators put into containers, which must not reach ranks.
_INJECTED = {
    "MPIJob": {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    },
    "PyTorchJob": {"MASTER_ADDR": "nowhere", "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": "0"},
}
_EVERY = 0.2  # seconds between looks


def definitions() -> Iterator[dict[str, Any]]:
    """The CustomResourceDefinitions."""
    for kind, plural, group, version in KINDS:
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {
            "name": version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
            "subresources": {"status": {}},
        }
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "scope": "Namespaced",
                "versions": [served],
            },
        }


def pods(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pods that an operator makes of a job of its own."""
    kind, name = job["kind"], job["metadata"]["name"]
    if kind in _SPECS:
        for role, spec in job["spec"][_SPECS[kind]].items():
            for index in range(spec["replicas"]):
                yield _pod(
                    job,
                    spec["template"],
                    f"{name}-{role.lower()}-{index}",
                    "training.kubeflow.org/replica-index",
                    index,
                )
    else:
        for task in job["spec"]["tasks"]:
            for index in range(task["replicas"]):
                yield _pod(job, task["template"], f"{name}-{task['name']}-{index}", "volcano.sh/task-index", index)


def _pod(job: dict[str, Any], template: dict[str, Any], name: str, label: str, index: int) -> dict[str, Any]:
    owner = {key: job[key] for key in ("apiVersion", "kind")} | {key: job["metadata"][key] for key in ("name", "uid")}
    given = template.get("metadata", {})
    injected = [{"name": key, "value": value} for key, value in _INJECTED.get(job["kind"], {}).items()]
    (container,) = template["spec"]["containers"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job["metadata"]["namespace"],
            "labels": {**given.get("labels", {}), label: str(index)},
            "annotations": given.get("annotations", {}),
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            **{key: value for key, value in template["spec"].items() if key != "schedulerName"},
            "containers": [{**container, "env": [*container.get("env", ()), *injected]}],
        },
    }


@contextmanager
def operator(cluster: Cluster) -> Iterator[None]:
    """Makes the pods of all jobs of these kinds, for as long as the block runs."""
    cluster.apply(*definitions())
    names = [f"{plural}.{group}" for _, plural, group, _ in KINDS]
    cluster.until(lambda: _served(cluster, names), what="the kinds of the operators")
    stop = threading.Event()

    def work() -> None:
        done: set[str] = set()
        while not stop.wait(_EVERY):
            try:
                for job in [one for name in names for one in cluster.get(name, "-A")]:
                    if job["metadata"]["uid"] not in done and not job["metadata"].get("deletionTimestamp"):
                        done.add(job["metadata"]["uid"])
                        cluster.apply(*pods(job))
            except RuntimeError:
                continue  # the job, or the API server, went meanwhile

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        cluster.kubectl("delete", "crd", *names)


def _served(cluster: Cluster, names: list[str]) -> bool:
    known = cluster.kubectl("api-resources", "-o", "name", check=False).split()
    return set(names) <= set(known)
