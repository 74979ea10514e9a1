"""Failures of nodes, shared by all processes of a run: each writes to its own journal and reads all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.execution.retry import quarantine
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.store.encode import RecordError, from_json
from pytest_hetgpu.store.events import NAMES, HealthReported
from pytest_hetgpu.store.journal import Journal

T = TypeVar("T")

_OURS = f'"event":"{NAMES[HealthReported]}"'.encode()


class NodeHealth:
    """The failures of the nodes of a run. No node is quarantined if `limit` is None."""

    def __init__(self, journal: Journal, limit: int | None = quarantine.LIMIT) -> None:
        self._limit = limit
        self._journal = journal
        self._read: dict[Path, int] = {}
        self._seen: list[HealthReported] = []

    def make(self, job: Job, make: Callable[[], T], reset: Callable[[], None]) -> T:
        """Return the result of `make`. While a node is at fault, call it again until that node is quarantined.

        `reset` is called before `make` is called again.
        """
        while True:
            try:
                return make()
            except ProvisionError as error:
                if not self.not_ready(job, error):
                    raise
                reset()

    def not_ready(self, job: Job, error: ProvisionError) -> bool:
        """Record that a job's nodes could not be provisioned; return whether to try again before a quarantine."""
        why = " ".join(str(error).split()).removeprefix(f"{error.node}: ")
        health = quarantine.of_error(job, error.node, why)
        self._journal.health(health)
        return self._limit is not None and bool(health.failed) and not self.why_quarantined(job)

    def ran(self, job: Job, outcome: Outcome, result: RunResult) -> None:
        """Record what the run of a job has shown about its nodes."""
        if job.is_multi_host:
            self._journal.health(quarantine.of_run(job, outcome, result))

    def why_quarantined(self, job: Job) -> str:
        """Return why nodes of a job are quarantined, or ""."""
        if self._limit is None:
            return ""
        self._look()
        found = quarantine.quarantined(self._seen, self._limit)
        return "; ".join(quarantine.describe({node: found[node] for node in quarantine.names(job) if node in found}))

    def met(self, job: Job) -> bool:
        """Return whether a node of a job has come up in this part of the run, in any process."""
        self._look()
        mine = set(quarantine.names(job))
        return any(seen.came_up and mine.intersection(seen.nodes) for seen in self._seen)

    def quarantined(self) -> frozenset[str]:
        """Return the nodes in quarantine, named as by `quarantine.named`."""
        if self._limit is None:
            return frozenset()
        self._look()
        return frozenset(quarantine.quarantined(self._seen, self._limit))

    def _look(self) -> None:
        """Read the lines added to the journals since the last call; a last line may be incomplete."""
        for path in sorted(self._journal.path.parent.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read[path] = self._read.get(path, 0) + len(line)
                    self._seen += _health(line, self._journal.part)


def _health(line: bytes, since: int) -> Iterator[HealthReported]:
    """Yield the event in a journal line if it is of that part of the run: nodes may be repaired before a resume."""
    if _OURS in line[:200]:
        try:
            data = json.loads(line)
            if data.get("part", 0) >= since:
                yield from_json(HealthReported, data)
        except (ValueError, RecordError):
            return
