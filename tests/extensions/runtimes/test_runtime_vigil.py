"""When an engine counts as one that went away: not because a stream of events ended, which proxies end too."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pytest_hetgpu.extensions.runtimes._docker.address import Address
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine


class Api:
    """An engine's client whose stream of events lasts until `over` is set."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.created = "2026-11-20T10:00:00Z"

    def events(self, **_: object) -> Iterator[bytes]:
        self.over.wait(20)
        return iter(())

    def inspect_network(self, name: str) -> dict[str, str]:
        assert name == "bridge"
        return {"Created": self.created}


class Watched(Engine):
    """An engine whose pings are answered as `there` says."""

    def __init__(self) -> None:
        super().__init__(Address("unix:///nowhere/docker.sock", "the engine"))
        self.client = self._api = Api()
        self.there = True

    def _pings(self, patience: float) -> bool:
        return self.there

    def stream_ends(self) -> None:
        self.client.over.set()
        for thread in threading.enumerate():
            if thread.name == "hetgpu engine":
                thread.join(20)


@pytest.fixture
def engine() -> Iterator[Watched]:
    engine = Watched()
    yield engine
    engine.stream_ends()


def test_a_stream_that_a_proxy_ended_is_no_absence(engine: Watched) -> None:
    since = engine.watch(engine.client)
    engine.stream_ends()
    assert engine.away(since) == ""
    assert engine.breaks == 0


def test_an_engine_that_did_not_answer_then_was_away(engine: Watched) -> None:
    since = engine.watch(engine.client)
    engine.there = False
    engine.stream_ends()
    assert engine.away(since) == "the engine does not answer"
    engine.there = True
    assert engine.away(since).startswith("the engine was away and is back")
    assert engine.breaks == since + 1


def test_a_daemon_that_was_started_anew_was_away_whatever_became_of_the_stream(engine: Watched) -> None:
    since = engine.watch(engine.client)
    engine.client.created = "2026-11-20T11:00:00Z"
    assert engine.away(since).startswith("the engine was away and is back")
    assert engine.breaks == since + 1
    since = engine.watch(engine.client)
    assert engine.away(since) == ""


def test_an_engine_that_does_not_say_when_it_was_started_is_believed(engine: Watched) -> None:
    since = engine.watch(engine.client)
    engine.client.created = ""
    assert engine.away(since) == ""


def test_a_connection_that_we_dropped_is_no_absence(engine: Watched) -> None:
    engine.watch(engine.client)
    engine._api = None
    engine.there = False
    engine.stream_ends()
    assert engine.breaks == 0
