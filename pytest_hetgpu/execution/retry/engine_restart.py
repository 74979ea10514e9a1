"""Waits for a container engine that answered in this run and no longer does: its restart costs no cell."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from pytest_hetgpu.errors import HetgpuError, NotHere
from pytest_hetgpu.execution.budget import UNLIMITED, Budget
from pytest_hetgpu.extensions.runtimes.base import Service
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.store.journal import Journal

TIMEOUT_VARIABLE = "HETGPU_ENGINE_TIMEOUT"
USUAL_TIMEOUT = 30.0
_TRIES = 3
_STEP = 0.25  # seconds between two questions
_PING = 1.0  # seconds for an answer while it is waited for, so that a budget that ends is heeded

T = TypeVar("T")


class EngineRestarts:
    """The waits of one process. It never waits for an engine that has not answered in this run."""

    def __init__(self, journal: Journal, budget: Budget = UNLIMITED) -> None:
        self._journal = journal
        self._budget = budget
        self._pause = threading.Event()
        self._given_up: set[str] = set()

    def why_absent(self, job: Job, *, met: bool = False) -> str:
        """Wait until the engines of a job's nodes answer. Return the reason if one does not, else "".

        It waits for an engine that answered this process before, and for any with `met`. Later cells ask an engine that
        did not come back in time only once; they wait for it again after it has answered.
        """
        for service in _services(job):
            if (met or service.met) and not self._wait(job, service):
                return self._budget.spent or (
                    f"the container engine at {service.address} went away and has not answered for {_limit():g} s: "
                    f"{service.restart}, then take the run up again with --hetgpu-resume"
                )
        return ""

    def make(self, job: Job, make: Callable[[], T], reset: Callable[[], None]) -> T:
        """Return the result of `make`. Call it again if an engine was lost; raise NotHere if it stays away.

        `reset` is called before `make` is called again: the absence of an engine is no failure of a node.
        """
        for left in reversed(range(_TRIES)):
            services = _services(job)
            before = [service.breaks for service in services]
            try:
                return make()
            except HetgpuError as error:
                if not (left and _broke(services, before)):
                    raise
                reset()
                away = self.why_absent(job)
                if away:
                    raise NotHere(away) from error
        raise AssertionError

    def _wait(self, job: Job, service: Service) -> bool:
        """Return whether the engine answers, now or within its time."""
        address, limit = service.address, _limit()
        if service.answers(10 * _PING):
            self._given_up.discard(address)
            return True
        if address in self._given_up or self._budget.spent:
            return False
        deadline = time.monotonic() + limit
        self._journal.waiting(job, f"{WAITS}{address}: it does not answer (up to {limit:g} s)")
        try:
            while time.monotonic() < deadline and not self._budget.spent:
                self._pause.wait(_STEP)
                if service.answers(_PING):
                    return True
        finally:
            self._journal.waiting(job, "")
        self._given_up.add(address)
        return False


WAITS = "waits for the container engine at "
"""What the journal says of a cell begins with this while it waits for an engine."""


def _services(job: Job) -> tuple[Service, ...]:
    """Return the services that make the nodes of a job and may restart; none for processes of this machine."""
    found: list[Service] = []
    for kind in dict.fromkeys(node.hardware.runtime for node in job.all_nodes if job.is_multi_host):
        nodes = [node for node in job.all_nodes if node.hardware.runtime == kind]
        found += runtime_of(kind).services(nodes)
    return tuple(found)


def _broke(services: Sequence[Service], before: Sequence[int]) -> bool:
    """Return whether a service that had answered was lost since its breaks were counted, or does not answer now."""
    pairs = zip(services, before, strict=True)
    return any(one.met and (one.breaks != count or not one.answers(10 * _PING)) for one, count in pairs)


def _limit() -> float:
    """Return the seconds to wait for an engine."""
    try:
        return max(0.0, float(os.environ.get(TIMEOUT_VARIABLE, USUAL_TIMEOUT)))
    except ValueError:
        return USUAL_TIMEOUT
