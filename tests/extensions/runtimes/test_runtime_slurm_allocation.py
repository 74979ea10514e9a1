"""When an allocation counts as there, by what a controller answers look by look."""

from __future__ import annotations

import itertools
import queue

import pytest

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes._slurm import allocation, client
from pytest_hetgpu.extensions.runtimes._slurm.allocation import Allocation
from pytest_hetgpu.extensions.runtimes.base import Deployment, Walltime
from pytest_hetgpu.extensions.runtimes.batch.request import Batch
from pytest_hetgpu.model.job import Hardware, Node


class Granted:
    """A keeper whose salloc has its answer at once."""

    closed = 0

    def __init__(self, _: object) -> None:
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.lines.put("salloc: Granted job allocation 7")

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the job's state is at each look; the last for ever."""
    told: list[str] = []
    looks = itertools.count()

    def jobs(job: str) -> list[dict[str, str]]:
        state = told[min(next(looks), len(told) - 1)]
        return [{"JobId": job, "JobState": state, "NodeList": "n1", "TimeLimit": "00:30:00", "RunTime": "00:00:00"}]

    monkeypatch.setattr(Granted, "closed", 0)
    monkeypatch.setattr(allocation, "Keeper", Granted)
    monkeypatch.setattr(allocation, "_BOOTING", 0.01)
    monkeypatch.setattr(client, "program", lambda name: name)
    monkeypatch.setattr(client, "jobs", jobs)
    monkeypatch.setattr(client, "ask", lambda *_: ("n1\n", ""))
    return told


def made(patience: float) -> Allocation:
    nodes = (Node(0, Hardware("one", runtime="slurm", settings=Batch(queue=patience)), "one", 1, "one"),)
    return Allocation(nodes, Deployment("p", "run", "me@here:1", nodes))


def test_nodes_that_boot_are_waited_for(states: list[str]) -> None:
    states += ["CONFIGURING", "CONFIGURING", "RUNNING"]
    found = made(60.0)
    assert [place.host for place in found.places] == ["n1"]
    assert isinstance(found.walltime, Walltime)
    assert found.walltime.seconds == 1800
    assert Granted.closed == 0


def test_nodes_that_do_not_come_up_are_given_back_with_what_to_do(states: list[str]) -> None:
    states += ["CONFIGURING"]
    with pytest.raises(
        ProvisionError, match=r"job 7 were not up after 0.05 s \(CONFIGURING\): give `queue` of `slurm`"
    ):
        made(0.05)
    assert Granted.closed == 1
