"""Waiting for a container engine that was there in this run and does not answer: restarted, it loses no cell."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from pytest_hetgpu.errors import HetgpuError, NotHere
from pytest_hetgpu.execution.retry.budget import Budget
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.runtimes.base import MemberRuntime, Service
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.store.journal import Journal

TIMEOUT_VARIABLE = "HETGPU_ENGINE_TIMEOUT"
USUAL_TIMEOUT = 30.0
_TRIES = 3
_STEP = 0.25  # seconds between two questions
_PING = 1.0  # seconds for an answer while it is waited for, so that a budget that ends is heeded

T = TypeVar("T")


class Returning:
    """The waits of one process. An engine that never answered in this run is not waited for: it is not here."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._pause = threading.Event()
        self._given_up: set[str] = set()

    def away(self, job: Job, budget: Budget, *, met: bool = False) -> str:
        """Wait until the engines of a job's nodes answer; return why it cannot go on where one does not, else "".

        An engine counts as there before if it answered this process, or with `met`. One that did not come back in its
        time is asked once by later cells, and waited for no more until it answers again.
        """
        for service in _services(job):
            if (met or service.met) and not self._awaited(job, service, budget):
                return budget.spent or (
                    f"the container engine at {service.address} went away and has not answered for {_limit():g} s: "
                    "start its daemon (`sudo systemctl start docker`), then take the run up again with --hetgpu-resume"
                )
        return ""

    def made(self, job: Job, make: Callable[[], T], forgive: Callable[[], None], budget: Budget) -> T:
        """Return what `make` gives, made again where an engine went away meanwhile; NotHere where it stays away.

        `forgive` is called before `make` is once more: what an engine's absence broke is no failure of a node.
        """
        for left in reversed(range(_TRIES)):
            services = _services(job)
            before = [service.breaks for service in services]
            try:
                return make()
            except HetgpuError as error:
                if not (left and _broke(services, before)):
                    raise
                forgive()
                away = self.away(job, budget)
                if away:
                    raise NotHere(away) from error
        raise AssertionError

    def _awaited(self, job: Job, service: Service, budget: Budget) -> bool:
        address, limit = service.address, _limit()
        if service.answers(10 * _PING):
            self._given_up.discard(address)
            return True
        if address in self._given_up or budget.spent:
            return False
        deadline = time.monotonic() + limit
        self._journal.waits(job, f"{WAITS}{address}: it does not answer (up to {limit:g} s)")
        try:
            while time.monotonic() < deadline and not budget.spent:
                self._pause.wait(_STEP)
                if service.answers(_PING):
                    return True
        finally:
            self._journal.waits(job, "")
        self._given_up.add(address)
        return False


WAITS = "waits for the container engine at "
"""What the journal says of a cell begins with this while it waits for an engine."""


def _services(job: Job) -> tuple[Service, ...]:
    """What makes the nodes of a job and may be restarted; nothing for a job whose nodes are processes of this one's."""
    found: list[Service] = []
    for kind in dict.fromkeys(node.hardware.runtime for node in job.all_nodes if job.is_multi_host):
        nodes = [node for node in job.all_nodes if node.hardware.runtime == kind]
        found += find("runtimes", kind, MemberRuntime).services(nodes)  # type: ignore[type-abstract]
    return tuple(found)


def _broke(services: Sequence[Service], before: Sequence[int]) -> bool:
    """Whether one of them, which had answered, went away since its breaks were counted, or does not answer now."""
    pairs = zip(services, before, strict=True)
    return any(one.met and (one.breaks != count or not one.answers(10 * _PING)) for one, count in pairs)


def _limit() -> float:
    """Seconds that an engine is waited for."""
    try:
        return max(0.0, float(os.environ.get(TIMEOUT_VARIABLE, USUAL_TIMEOUT)))
    except ValueError:
        return USUAL_TIMEOUT
