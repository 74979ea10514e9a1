"""What a placement keeps in the books, by what became of the request for its pods; and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pytest_hetgpu.errors import HetgpuError, ProvisionError
from pytest_hetgpu.extensions.runtimes._kubernetes import client, messages
from pytest_hetgpu.extensions.runtimes._kubernetes.client import KubernetesCluster, Object, Refused
from pytest_hetgpu.extensions.runtimes._kubernetes.messages import Refusal
from pytest_hetgpu.extensions.runtimes._kubernetes.placement import Placement
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.pods.request import Pods
from pytest_hetgpu.extensions.runtimes.process import ledger
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import Hardware, Node

NODES = (Node(0, Hardware("h200", runtime="kubernetes", settings=Pods(image="i:1")), "node0", 1, "node0"),)


class Book(ledger.ResourceTracker):
    """Counts the places that were closed."""

    struck = 0

    def place(self, spot: Location, *, once: bool = False) -> Callable[[], None]:
        def strike() -> None:
            self.struck += 1

        return strike


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    """The books, and a cluster that removes what it is asked to."""
    before, found = ledger.tracker(), Book()
    monkeypatch.setattr(client, "cluster_of", lambda _: KubernetesCluster("c", "n"))
    monkeypatch.setattr(KubernetesCluster, "ask", lambda *_, **__: "")
    ledger.use_tracker(found)
    yield found
    ledger.use_tracker(before)


@pytest.mark.parametrize(
    ("failure", "raised", "struck"),
    [
        (Refused(messages.silent("K", 30.0)), ProvisionError, 0),
        (KeyboardInterrupt(), KeyboardInterrupt, 0),
        (Refused(Refusal("K does not take your credentials")), ProvisionError, 1),
        (Refused(Refusal("K has no MPIJob", absent=True)), HetgpuError, 1),
    ],
    ids=["silence", "interrupt", "refusal", "kind"],
)
def test_what_may_yet_be_made_stays_in_the_books(
    book: Book, monkeypatch: pytest.MonkeyPatch, failure: BaseException, raised: type[BaseException], struck: int
) -> None:
    def create(_: KubernetesCluster, *objects: Object) -> Sequence[Object]:
        raise failure

    monkeypatch.setattr(KubernetesCluster, "create", create)
    with pytest.raises(raised):
        Placement(NODES, Deployment("p", "run", "me@here:1", NODES))
    assert book.struck == struck


def running(name: str, group: str) -> Object:
    container = {"name": Pods().container, "state": {"running": {}}}
    status = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [container]}
    return {"metadata": {"name": name, "labels": {"hetgpu.group": group}}, "spec": {"nodeName": "n"}, "status": status}


def test_of_several_jobs_the_one_that_lacks_pods_says_why(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = Pods(image="i:1", ready=0.0)
    kinds = (Hardware(kind, runtime="kubernetes", settings=pods) for kind in "ab")
    nodes = tuple(Node(place, kind, kind.name, 1, kind.name) for place, kind in enumerate(kinds))

    def get(_: KubernetesCluster, kind: str, name: str) -> Object:
        return {"kind": "Job", "spec": {"parallelism": 1}, "status": {"active": int(name.endswith("-0"))}}

    def events(_: KubernetesCluster, name: str) -> list[dict[str, Any]]:
        message = "failed calling webhook: context deadline exceeded"
        return [{"reason": "FailedCreate", "type": "Warning", "message": message}] if name.endswith("-1") else []

    monkeypatch.setattr(KubernetesCluster, "create", lambda _, *objects: list(objects[:1]))
    monkeypatch.setattr(KubernetesCluster, "list", lambda *_: [running("p-0", "0")])
    monkeypatch.setattr(KubernetesCluster, "get", get)
    monkeypatch.setattr(KubernetesCluster, "events", events)
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes._kubernetes.placement.owned", lambda one, _: one)
    with pytest.raises(ProvisionError, match=r"did not start .* in 0 s: Job \S+-1 got no pods: failed calling webhook"):
        Placement(nodes, Deployment("p", "run", "me@here:1", nodes))
