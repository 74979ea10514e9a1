"""Waiting for an engine that was there: how long, what is told of it, and what ends it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pytest_hetgpu.errors import ENGINE_AWAY, HetgpuError, NotHere, ProvisionError
from pytest_hetgpu.execution.budget import Budget
from pytest_hetgpu.execution.retry import engine_restart
from pytest_hetgpu.execution.retry.engine_restart import TIMEOUT_VARIABLE, EngineRestarts
from pytest_hetgpu.execution.retry.policy import lost_its_engine, settled
from pytest_hetgpu.execution.retry.quarantine import of_run
from pytest_hetgpu.execution.retry.state import RetryState
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import Finding, Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import job as sample

JOB = sample("send")
LOST = Outcome(
    Kind.NETWORK_FAILURE,
    Verdict.NEW,
    "why",
    Signature(Kind.NETWORK_FAILURE, "engine-lost@docker", "line", 1),
    findings=(Finding("signature", Kind.NETWORK_FAILURE, "why"), Finding("completeness", Kind.CRASH, "killed")),
)
PASSED = Outcome(Kind.PASSED, Verdict.OK)


@dataclass
class Engine:
    """A service whose answers are given, the last for ever."""

    answering: list[bool] = field(default_factory=lambda: [True])
    breaks: int = 0
    met: bool = True
    address: str = "unix:///e"
    restart: str = "start its daemon (`sudo systemctl start docker`)"
    asked: int = 0

    def answers(self, patience: float) -> bool:
        assert patience > 0
        self.asked += 1
        return self.answering.pop(0) if len(self.answering) > 1 else self.answering[0]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    one = Engine()
    monkeypatch.setattr(engine_restart, "_services", lambda _: (one,))
    monkeypatch.setattr(engine_restart, "_STEP", 0.01)
    return one


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(RunFolder.create(tmp_path).path, "main")) as one:
        yield one


def told(journal: Journal) -> list[str]:
    events = [json.loads(line) for line in journal.path.read_text().splitlines()]
    return [event["why"] for event in events if event["event"] == "waits"]


def test_an_engine_that_answers_is_not_waited_for(engine: Engine, journal: Journal) -> None:
    assert EngineRestarts(journal).why_absent(JOB) == ""
    assert (engine.asked, told(journal)) == (1, [])


def test_an_engine_that_never_answered_is_not_asked(engine: Engine, journal: Journal) -> None:
    engine.met, engine.answering = False, [False]
    assert EngineRestarts(journal).why_absent(JOB) == ""
    assert engine.asked == 0


def test_it_is_waited_for_until_it_answers(engine: Engine, journal: Journal) -> None:
    engine.met, engine.answering = False, [False, False, False, True]
    assert EngineRestarts(journal).why_absent(JOB, met=True) == ""
    assert told(journal) == ["waits for the container engine at unix:///e: it does not answer (up to 30 s)", ""]


def test_one_that_stays_away_is_waited_for_once(
    engine: Engine, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0.05")
    engine.answering = [False]
    waiting = EngineRestarts(journal)
    why = waiting.why_absent(JOB)
    assert why.startswith(
        "the container engine at unix:///e went away and has not answered for 0.05 s: start its daemon"
    )
    before = engine.asked
    assert waiting.why_absent(JOB) == why
    assert engine.asked == before + 1
    engine.answering = [True]
    assert waiting.why_absent(JOB) == ""


def test_the_end_of_the_runs_time_ends_the_wait(engine: Engine, journal: Journal) -> None:
    engine.answering = [False]
    began = time.monotonic()
    assert "the run's time was spent" in EngineRestarts(journal, Budget.of(0.1)).why_absent(JOB)
    assert time.monotonic() - began < 10


def test_what_an_engine_broke_is_made_again(engine: Engine, journal: Journal) -> None:
    made: list[HetgpuError | str] = [ProvisionError("node0", "gone"), "nodes"]
    forgiven = []

    def make() -> str:
        found = made.pop(0)
        if isinstance(found, HetgpuError):
            engine.breaks += 1
            raise found
        return found

    assert EngineRestarts(journal).make(JOB, make, lambda: forgiven.append(1)) == "nodes"
    assert forgiven == [1]


def test_what_a_node_broke_is_not(engine: Engine, journal: Journal) -> None:
    def make() -> str:
        raise ProvisionError("node0", "no sshd")

    with pytest.raises(ProvisionError, match="no sshd"):
        EngineRestarts(journal).make(JOB, make, pytest.fail)
    assert engine.asked == 1


def test_nodes_of_an_engine_that_stays_away_are_not_here(
    engine: Engine, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0")
    engine.answering = [False]

    def make() -> str:
        raise ProvisionError("node0", "refused")

    with pytest.raises(NotHere, match="went away and has not answered for 0 s"):
        EngineRestarts(journal).make(JOB, make, lambda: None)


@pytest.mark.usefixtures("engine")
def test_a_cell_whose_engine_went_away_has_one_more_attempt(journal: Journal, tmp_path: Path) -> None:
    state = RetryState(RunFolder.create(tmp_path), journal, EngineRestarts(journal))
    state.begin(JOB)
    assert state.should_retry(LOST, JOB)
    state.save(JOB, LOST)
    assert not state.should_retry(LOST, JOB)
    assert not state.should_retry(replace(LOST, signature=None), JOB)


def test_a_cell_whose_engine_stays_away_says_so(
    engine: Engine, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0")
    engine.answering = [False]
    state = RetryState(RunFolder.create(tmp_path), journal, EngineRestarts(journal))
    state.begin(JOB)
    assert not state.should_retry(LOST, JOB)
    assert state.finish(LOST).notes[0].startswith("not run once more: the container engine at unix:///e went away")


def test_what_is_expected_or_another_failure_is_not_the_engines() -> None:
    assert lost_its_engine(LOST)
    assert not lost_its_engine(replace(LOST, verdict=Verdict.KNOWN))
    assert not lost_its_engine(replace(LOST, kind=Kind.CRASH))
    assert not lost_its_engine(PASSED)


def test_a_report_reads_such_an_attempt_as_the_run_did() -> None:
    assert settled([("attempt-1/output.log", LOST), ("output.log", PASSED)]).flaky


def test_no_node_is_blamed_for_its_engine() -> None:
    joined: Job = replace(JOB, nodes=tuple(replace(node, name=f"n{at}") for at, node in enumerate(JOB.nodes)))
    lost = tuple(f"node {node.name} (x on h) was lost: {ENGINE_AWAY}: no answer" for node in joined.nodes)
    result = RunResult((), 255, "", 0.0, 1.0, lost=lost)
    for outcome in (LOST, PASSED):
        seen = of_run(joined, outcome, result)
        assert (seen.failed, seen.suspect) == ({}, "")
