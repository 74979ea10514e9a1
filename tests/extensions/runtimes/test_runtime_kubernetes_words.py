"""What kubectl and the cluster say, in words for who can do something about it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hetgpu.extensions.runtimes._kubernetes import messages, pending_reasons

FORBIDDEN = (
    'Error from server (Forbidden): error when creating "STDIN": jobs.batch is forbidden: User "ada" cannot create '
    'resource "jobs" in API group "batch" in the namespace "gpu"'
)
NO_EXEC = 'Error from server (Forbidden): pods "p" is forbidden: User "ada" cannot create resource "pods/exec" in API group "" in the namespace "gpu"'  # noqa: E501


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (
            FORBIDDEN,
            "ada may not create jobs in namespace gpu of K: check with `kubectl auth can-i create jobs.batch -n gpu",
        ),
        (NO_EXEC, "`kubectl auth can-i create pods --subresource=exec -n gpu --context c`"),
        (
            "error: You must be logged in to the server (Unauthorized)",
            "K does not take your credentials. They have expired",
        ),
        (
            'Error from server (NotFound): namespaces "nope" not found',
            "K has no namespace nope: see `kubectl get namespaces",
        ),
        ('error: context "nope" does not exist', "kubectl has no context nope: see `kubectl config get-contexts`"),
        ("error: cannot locate context nope", "kubectl has no context nope:"),
        ('pods "p" is forbidden: exceeded quota: one, requested: pods=1', "K has no more room for it in namespace gpu"),
        ('pods "p" is forbidden: violates PodSecurity "restricted:latest": x', "(PodSecurity restricted:latest)"),
        ('admission webhook "v.k.io" denied the request: no', "K does not admit it (webhook v.k.io)"),
        (
            "Unable to connect to the server: getting credentials: exec: aws not found",
            "the credentials for K cannot be had",
        ),
        ("x509: certificate signed by unknown authority", "the certificate of K, or yours, is not good for it"),
        ("Something new", "K refused: Something new"),
    ],
)
def test_a_refusal_is_one_line_with_what_to_do(said: str, says: str) -> None:
    found = messages.refusal(f"E1122 12:00 noise\n{said}\n", "K", "gpu", "c")
    assert says in found.text
    assert "\n" not in found.text
    assert "noise" not in found.text
    assert (found.absent, found.away, found.missing) == (False, False, False)


@pytest.mark.parametrize(
    "said",
    [
        "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?",
        "Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout",
        "Unable to connect to the server: net/http: TLS handshake timeout",
        "Unable to connect to the server: unexpected EOF",
        "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
        "Error from server: etcdserver: request timed out",
    ],
)
def test_a_server_that_may_come_back_is_told_apart(said: str) -> None:
    found = messages.refusal(said, "K", "gpu")
    assert found.away
    assert "the API server of K does not answer: `kubectl cluster-info` tries it" in found.text
    # Else it would be read as kubectl's own complaint, and as a launch that failed.
    assert "did you specify" not in found.text


def test_a_kubelet_that_is_away_is_not_taken_for_its_server() -> None:
    found = messages.refusal(
        "Error from server: error dialing backend: dial tcp 10.0.0.7:10250: i/o timeout", "K", "gpu"
    )
    assert found.unreached
    assert not found.away
    assert found.text == (
        "the API server of K does not reach the kubelet of that pod's node, which `kubectl exec` needs: "
        "`kubectl get nodes` shows whether it is there (error dialing backend: dial tcp 10.0.0.7:10250: i/o timeout)"
    )


@pytest.mark.parametrize(
    ("kind", "version", "operator"),
    [
        ("MPIJob", "kubeflow.org/v2beta1", "the MPI Operator"),
        ("PyTorchJob", "kubeflow.org/v1", "Kubeflow's Training Operator"),
        ("Job", "batch.volcano.sh/v1alpha1", "Volcano"),
    ],
)
def test_a_kind_that_is_not_known_names_who_brings_it(kind: str, version: str, operator: str) -> None:
    found = messages.refusal(
        f'unable to recognize "STDIN": no matches for kind "{kind}" in version "{version}"', "K", "gpu"
    )
    assert found.absent
    assert f"K has no {kind} of {version}: it lacks {operator}" in found.text


def pod(container: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    given = [{"name": "main", "image": "i", "state": container}] if container else []
    return {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "8", "cpu": "500m"}}}]},
        "status": {"containerStatuses": given, **status},
    }


@pytest.mark.parametrize(
    ("status", "events", "says"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, (), "pod p was evicted (low on memory)"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, (), "pod p reached its deadline: give `ttl`"),
        ({"phase": "Failed", "reason": "Preempting"}, (), "pod p was preempted"),
        ({"phase": "Running"}, ({"reason": "NodeNotReady"},), "pod p lost its node n1"),
        ({"phase": "Failed"}, (), "pod p ended (Failed)"),
        ({"phase": "Running"}, (), ""),
    ],
)
def test_how_a_pod_ended(status: dict[str, Any], events: tuple[dict[str, Any], ...], says: str) -> None:
    found = messages.ended(pod(**status), events)
    assert found.startswith(says) if says else not found


def test_how_a_container_ended() -> None:
    assert "killed for its memory" in messages.ended(pod({"terminated": {"reason": "OOMKilled", "exitCode": 137}}), ())
    assert (
        messages.ended(pod({"terminated": {"reason": "Error", "exitCode": 3}}), ())
        == "pod p ended (Error, exit code 3)"
    )


@pytest.mark.parametrize(
    ("events", "disruption", "says"),
    [
        (({"reason": "Preempted", "message": "by x"},), "", "pod p was preempted (by x)"),
        (({"reason": "TaintManagerEviction"},), "", "pod p lost its node"),
        ((), "EvictionByEvictionAPI", "pod p was evicted"),
        ((), "PreemptionByScheduler", "pod p was preempted"),
        (({"reason": "Killing"},), "", "pod p was deleted"),
    ],
)
def test_how_a_pod_was_taken(events: tuple[dict[str, Any], ...], disruption: str, says: str) -> None:
    assert messages.taken("p", events, disruption).startswith(says)


@pytest.mark.parametrize(
    ("message", "final"), [("manifest unknown", True), ("no such host", True), ("i/o timeout", False), ("503", False)]
)
def test_an_image_that_cannot_be_pulled_is_final_unless_the_registry_may_come_back(message: str, final: bool) -> None:
    found = pending_reasons.reason(pod({"waiting": {"reason": "ErrImagePull", "message": message}}))
    assert found.text.startswith("the image i cannot be pulled: check its name")
    assert found.final is final


@pytest.mark.parametrize(
    ("cause", "final", "soon"),
    [
        ('Failed to pull image "i": manifest unknown', True, True),
        ('Failed to pull image "i": dial tcp: i/o timeout', False, False),
        ('Failed to pull image "i": manifest for i:sha-9503f unknown', True, True),
        ("Error: ErrImagePull", False, True),
    ],
)
def test_between_two_tries_to_pull_an_image_the_last_ones_cause_counts(cause: str, final: bool, soon: bool) -> None:
    waits = pod({"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'}})
    found = pending_reasons.reason(waits, ({"reason": "Failed", "type": "Warning", "message": cause},))
    assert (found.final, found.soon) == (final, soon)
    assert "Back-off pulling" in found.text or cause in found.text


QUOTA = "pods is forbidden: exceeded quota: q, requested: amd.com/gpu={}, used: amd.com/gpu=8, limited: amd.com/gpu=8"


@pytest.mark.parametrize(
    ("message", "final"),
    [
        ("Internal error occurred: failed calling webhook x: context deadline exceeded", False),
        (QUOTA.format(8), False),
        (QUOTA.format(16), True),
        ("pods is forbidden: exceeded quota: q, requested: memory=2Gi, used: memory=0, limited: memory=1Gi", True),
        ('pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation', True),
        ("pods is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi", True),
    ],
)
def test_what_a_controller_was_refused_is_final_only_where_the_next_try_is_refused_too(
    message: str, final: bool
) -> None:
    found = pending_reasons.refused(({"reason": "FailedCreate", "type": "Warning", "message": message},))
    assert found
    assert (found.final, found.soon) == (final, True)


@pytest.mark.parametrize("count", range(0, 400, 7))
def test_a_reason_that_passes_counts_wherever_it_stands_in_a_long_message(count: int) -> None:
    taint = f"1 node(s) had untolerated taint {{{'t' * count}: true}}"
    labels = "4 node(s) didn't match Pod's node affinity/selector"
    found = pending_reasons.reason(unscheduled(f"0/9 nodes are available: {taint}, {labels}, 4 Insufficient cpu."))
    assert not found.soon
    assert len(found.text) < 400


def unscheduled(message: str) -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "message": message}])


GPU = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
NO_LABELS = "0/1 nodes are available: 1 node(s) didn't match node selector."


@pytest.mark.parametrize(
    ("message", "most", "soon", "says"),
    [
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity.", None, True, "`node_selector`"),
        ("0/2 nodes are available: 2 node(s) didn't match node selector. preemption: 0/2 nodes", None, True, "labels"),
        (
            "0/2 nodes are available: 2 node(s) had taint {gpu: yes}, that the pod didn't tolerate.",
            None,
            True,
            "taint gpu",
        ),
        ("0/1 nodes are available: 1 node(s) had taint {node.kubernetes.io/not-ready: }", None, False, "no room"),
        (
            "0/1 nodes are available: 1 node(s) had taint {node.cloudprovider.kubernetes.io/uninitialized: true}",
            None,
            False,
            "no room",
        ),
        (GPU, None, False, "there is no room for it"),
        (GPU, "4", True, "no node has so much nvidia.com/gpu, the most is 4: see `resources`"),
        (GPU, "8", False, "there is no room for it"),
        ("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match node selector.", None, False, "no room"),
        ("", None, False, "no scheduler has looked at it: is there one called default-scheduler?"),
    ],
)
def test_what_a_scheduler_says(message: str, most: str | None, soon: bool, says: str) -> None:
    nodes = most and [{"status": {"allocatable": {"nvidia.com/gpu": most}}}]
    found = pending_reasons.reason(unscheduled(message), (), nodes or None)
    assert says in found.text
    assert (found.final, found.soon) == (False, soon)


def test_a_cluster_that_grows_is_waited_for() -> None:
    grows = ({"reason": "NotTriggerScaleUp", "message": "no"}, {"reason": "TriggeredScaleUp"})
    found = pending_reasons.reason(unscheduled(NO_LABELS), grows)
    assert not found.soon
    assert "adding a node" in found.text


@pytest.mark.parametrize(
    ("message", "told", "final"),
    [
        (NO_LABELS, "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity/selector", True),
        (NO_LABELS, "pod didn't trigger scale-up (it wouldn't fit if a new node is added):", True),
        (NO_LABELS, "pod didn't trigger scale-up: 1 in backoff after failed scale-up", False),
        (GPU, "pod didn't trigger scale-up: 1 max node group size reached", False),
    ],
)
def test_an_autoscaler_that_adds_no_node_ends_the_wait_for_what_no_node_has(
    message: str, told: str, final: bool
) -> None:
    found = pending_reasons.reason(unscheduled(message), ({"reason": "NotTriggerScaleUp", "message": told},))
    assert found.final is final


@pytest.mark.parametrize(("text", "number"), [("2", 2), ("500m", 0.5), ("1Gi", 2**30), ("2k", 2000), ("many", 0)])
def test_amounts(text: str, number: float) -> None:
    assert float(pending_reasons.amount(text)) == number


@pytest.mark.parametrize(
    ("main", "says"),
    [
        ({"kind": "Job", "spec": {"suspend": True}}, "suspended"),
        ({"kind": "MPIJob", "spec": {}}, "this MPIJob has no status"),
        ({"kind": "Job", "status": {"conditions": [{"type": "Failed", "status": "True", "message": "m"}]}}, "m"),
        ({"kind": "Job"}, "its controller has made none"),
    ],
)
def test_why_there_are_no_pods(main: dict[str, Any], says: str) -> None:
    assert says in pending_reasons.unstarted(main)
