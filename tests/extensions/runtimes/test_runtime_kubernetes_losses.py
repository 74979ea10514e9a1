"""What became of a pod: the cluster's word, else what a command in it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.extensions.runtimes._kubernetes import messages, pod_failures
from pytest_hetgpu.extensions.runtimes._kubernetes.client import KubernetesCluster, Refused

CLUSTER = KubernetesCluster("c", "n")
RUNS = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
REFUSED = "Error from server: error dialing backend: dial tcp 10.0.0.7:10250: connect: connection refused"
BEHIND_A_PROXY = (
    "Error from server: proxy error from 127.0.0.1:6443 while dialing 10.0.0.7:10250, code 502: 502 Bad Gateway"
)
AWAY = messages.silent("K", 30.0)

Answers = Callable[..., None]


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Has a cluster answer: `pods` to who asks for the pod, one after the other, `exec` to a command in it."""

    def answers(
        pods: list[Any], exec_: messages.Refusal | None = None, events: tuple[dict[str, str], ...] = ()
    ) -> None:
        def get(*_: object) -> Any:
            found = pods.pop(0) if len(pods) > 1 else pods[0]
            if isinstance(found, messages.Refusal):
                raise Refused(found)
            return found

        def ask(_: KubernetesCluster, *argv: str) -> str:
            assert argv == ("exec", "p", "-c", "main", "--", "true")
            if exec_:
                raise Refused(exec_)
            return ""

        monkeypatch.setattr(KubernetesCluster, "get", get)
        monkeypatch.setattr(KubernetesCluster, "ask", ask)
        monkeypatch.setattr(KubernetesCluster, "events", lambda *_, **__: events)

    return answers


def why() -> str:
    return pod_failures.why_lost(CLUSTER, "p", "n1", "main", 0.0)


@pytest.mark.parametrize("said", [REFUSED, BEHIND_A_PROXY])
def test_a_node_whose_kubelet_is_not_reached_is_lost_whatever_the_cluster_says_of_it_yet(
    kubernetes: Answers, said: str
) -> None:
    kubernetes([RUNS], messages.refusal(said, "K", "n"))
    assert why().startswith(
        "pod p lost its node n1: the API server of K does not reach the kubelet of that pod's node, "
    )
    assert "10.0.0.7:10250" in why()


def test_a_node_that_does_not_even_refuse_is_lost_where_the_server_is_there(kubernetes: Answers) -> None:
    kubernetes([RUNS], AWAY)
    assert why() == "pod p lost its node n1: nothing can be run in it any more, while the API server answers"


def test_a_server_that_goes_away_meanwhile_is_no_lost_node(kubernetes: Answers) -> None:
    kubernetes([RUNS, AWAY], AWAY)
    assert why() == ""


def test_a_server_that_is_away_is_said(kubernetes: Answers) -> None:
    kubernetes([AWAY])
    assert "the API server of K does not answer" in why()


def test_what_the_cluster_says_while_a_node_is_asked_counts_more(kubernetes: Answers) -> None:
    kubernetes([RUNS, RUNS, {**RUNS, "status": {"phase": "Failed", "reason": "Evicted"}}], AWAY)
    assert why() == "pod p was evicted"


@pytest.mark.parametrize(
    "refusal",
    [None, messages.refusal('pods "p" is forbidden: User "ada" cannot create resource "pods/exec"', "K", "n")],
)
def test_a_node_that_is_there_or_cannot_be_asked_has_nothing_against_it(
    kubernetes: Answers, refusal: messages.Refusal | None
) -> None:
    kubernetes([RUNS], refusal)
    assert why() == ""


def test_a_kubectl_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why().startswith("there is no kubectl in PATH")


def test_a_pod_that_is_gone_is_not_asked(kubernetes: Answers) -> None:
    kubernetes([messages.Refusal("K has no such object", missing=True)], AWAY, ({"reason": "TaintManagerEviction"},))
    assert why().startswith("pod p lost its node: the cluster gave that up")


@pytest.mark.parametrize(
    ("conditions", "doubtful"),
    [
        (None, False),
        ([{"type": "Ready", "status": "True"}], False),
        ([{"type": "Ready", "status": "False"}], True),
        ([{"type": "Ready", "status": "Unknown"}], True),
        ([{"type": "PodScheduled", "status": "False"}], False),
    ],
)
def test_a_pod_that_gets_no_requests_any_more_is_doubtful(conditions: object, doubtful: bool) -> None:
    assert pod_failures.doubtful({"status": {"conditions": conditions}}) is doubtful
