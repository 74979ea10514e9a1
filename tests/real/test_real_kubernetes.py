"""Whole runs on the pods of a real Kubernetes, and what may happen to them there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.kubernetes.daemons import NODE
from tests.kubernetes.operators import KINDS, definitions, operator
from tests.real.nodes_here import properties
from tests.real.pods_here import Pods

pytestmark = [pytest.mark.real, pytest.mark.beside]


def only(pytester: pytest.Pytester) -> dict[str, str]:
    (cell,) = properties(pytester.path / "reports").values()
    return cell


@pytest.mark.parametrize("nodes", ["[one, one]", "[one, other]"])
def test_two_pods_reduce_what_they_have(pods: Pods, pytester: pytest.Pytester, nodes: str) -> None:
    assert pods.run(nodes).ret == 0
    assert only(pytester)["outcome"] == "passed"
    kept = json.loads((pods.reports / "placements/nodes-pair/environment.json").read_text())
    facts = json.dumps(kept)
    assert NODE in facts
    assert "kubernetes.queued" in facts
    assert "tests/hetgpu-nodes-pair-" in facts


@pytest.mark.parametrize("kind", ["mpijob", "pytorchjob", "volcano"])
def test_pods_that_an_operator_makes(pods: Pods, pytester: pytest.Pytester, kind: str) -> None:
    with operator(pods.cluster):
        assert pods.run(site=f"{{kind: {kind}}}").ret == 0
        assert only(pytester)["outcome"] == "passed"
        pods.cluster.until(lambda: pods.cluster.left() == [], what="nothing of a run in the cluster")


@pytest.mark.parametrize(
    ("site", "signature", "says"),
    [
        (
            "{image: nowhere.invalid/no/such:1}",
            "no-registry@engine",
            "the image nowhere.invalid/no/such:1 cannot be pulled: check its name, and `image_pull_secrets`",
        ),
        (
            "{node_selector: {gpu: h200}}",
            "unschedulable@kubernetes",
            "no node has the labels that `node_selector` asks for: see `kubectl get nodes --show-labels`",
        ),
        (
            "{resources: {cpu: 99}, ready: 4}",
            "unschedulable@kubernetes",
            "there is no room for it (0/1 nodes are avail",
        ),
        (
            "{namespace: tight, ready: 4}",
            "not-ready@kubernetes",
            "the quota of the namespace does not allow it: see `kubectl",
        ),
        (
            "{namespace: closed}",
            "not-ready@kubernetes",
            "check with `kubectl auth can-i create jobs.batch -n closed --context user`, and ask for that right",
        ),
        ("{context: nowhere}", "not-ready@kubernetes", "kubectl has no context nowhere: see `kubectl config get-cont"),
        (
            "{scheduler: nobody, ready: 4}",
            "not-ready@kubernetes",
            "no scheduler has looked at it: is there one called nobody?",
        ),
    ],
    ids=["image", "selector", "room", "quota", "rights", "context", "scheduler"],
)
def test_what_cannot_start_is_said_with_what_to_do(
    pods: Pods, pytester: pytest.Pytester, site: str, signature: str, says: str
) -> None:
    with pods.fixed_size():
        assert pods.run(site=site).ret == 1
    cell = only(pytester)
    log = pods.log()
    assert (cell["outcome"], cell["signature"]) == ("launch_failure", signature)
    assert says in log
    assert log.count("\n") == 1


def test_who_may_see_the_nodes_is_told_at_once_what_none_has(
    pods: Pods, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(pods.cluster.config))
    with pods.fixed_size():
        assert pods.run(site="{namespace: tests, resources: {nvidia.com/gpu: 8}, ready: 600}").ret == 1
    assert "no node has so much nvidia.com/gpu, the most is 0: see `resources`" in pods.log()


def test_a_namespace_that_is_not_there(pods: Pods, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(pods.cluster.config))
    assert pods.run(site="{namespace: nowhere}").ret == 1
    assert "Kubernetes at admin has no namespace nowhere: see `kubectl get namespaces" in pods.log()


def test_a_kind_that_no_operator_brought_skips_and_says_which(pods: Pods) -> None:
    result = pods.run("[one, one]", "allreduce: {sizes: 8}", "{kind: mpijob}")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*has no MPIJob of kubeflow.org/v2beta1: it lacks the MPI Operator*"])


def test_an_operator_that_does_not_run(pods: Pods) -> None:
    pods.cluster.apply(*definitions())
    try:
        assert pods.run(site="{kind: mpijob, ready: 4}").ret == 1
        assert "this MPIJob has no status: its operator does not run" in pods.log()
    finally:
        pods.cluster.kubectl("delete", "crd", *(f"{plural}.{group}" for _, plural, group, _ in KINDS))


def test_no_kubectl_skips_and_says_how_to_get_it(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    result = pods.run()
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*there is no kubectl in PATH, which runtime kubernetes needs*"])


def test_no_cluster_skips_and_says_what_to_set(pods: Pods, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    result = pods.run()
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*kubectl has no Kubernetes cluster here: set KUBECONFIG*"])


def test_credentials_that_have_expired(pods: Pods, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    old = pods.cluster.write_config("old", {"token": pods.cluster.token(-60)})
    monkeypatch.setenv("KUBECONFIG", str(old))
    assert pods.run().ret == 1
    assert only(pytester)["signature"] == "not-ready@kubernetes"
    assert "does not take your credentials. They have expired" in pods.log()
