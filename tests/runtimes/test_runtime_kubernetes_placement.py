"""What a placement keeps in the books, by what became of the request for its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from pytest_hetgpu.errors import HetgpuError, ProvisionError
from pytest_hetgpu.model import Hardware, Node
from pytest_hetgpu.pods import Pods
from pytest_hetgpu.runtimes import _books
from pytest_hetgpu.runtimes._kubernetes import client, words
from pytest_hetgpu.runtimes._kubernetes.client import Cluster, Object, Refused
from pytest_hetgpu.runtimes._kubernetes.placement import Placement
from pytest_hetgpu.runtimes._kubernetes.words import Refusal
from pytest_hetgpu.runtimes.base import Gathering

NODES = (Node(0, Hardware("h200", runtime="kubernetes", pods=Pods(image="i:1")), "node0", 1, "node0"),)


class Book(_books.Books):
    """Counts the places that were closed."""

    struck = 0

    def namespace(self, context: str, namespace: str, config: str, kinds: Sequence[str]) -> Callable[[], None]:
        def strike() -> None:
            self.struck += 1

        return strike


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    """The books, and a cluster that removes what it is asked to."""
    before, found = _books.books(), Book()
    monkeypatch.setattr(client, "cluster_of", lambda _: Cluster("c", "n"))
    monkeypatch.setattr(Cluster, "ask", lambda *_, **__: "")
    _books.keep(found)
    yield found
    _books.keep(before)


@pytest.mark.parametrize(
    ("failure", "raised", "struck"),
    [
        (Refused(words.silent("K", 30.0)), ProvisionError, 0),
        (KeyboardInterrupt(), KeyboardInterrupt, 0),
        (Refused(Refusal("K does not take your credentials")), ProvisionError, 1),
        (Refused(Refusal("K knows no MPIJob", absent=True)), HetgpuError, 1),
    ],
    ids=["silence", "interrupt", "refusal", "kind"],
)
def test_what_may_yet_be_made_stays_in_the_books(
    book: Book, monkeypatch: pytest.MonkeyPatch, failure: BaseException, raised: type[BaseException], struck: int
) -> None:
    def create(_: Cluster, *objects: Object) -> Sequence[Object]:
        raise failure

    monkeypatch.setattr(Cluster, "create", create)
    with pytest.raises(raised):
        Placement(NODES, Gathering("p", "run", "me@here:1", NODES))
    assert book.struck == struck
