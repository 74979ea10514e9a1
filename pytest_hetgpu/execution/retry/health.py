"""The health of nodes as all processes of a run have met it: each tells its own journal, and reads all of them."""

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
from pytest_hetgpu.store.events import NAMES, Health
from pytest_hetgpu.store.journal import Journal

T = TypeVar("T")

_OURS = f'"event":"{NAMES[Health]}"'.encode()


class NodeHealth:
    """What is known of the nodes of a run; no node is given up where `limit` is None."""

    def __init__(self, journal: Journal) -> None:
        self.limit: int | None = quarantine.LIMIT
        self._journal = journal
        self._read: dict[Path, int] = {}
        self._seen: list[Health] = []

    def made(self, job: Job, make: Callable[[], T], forgive: Callable[[], None]) -> T:
        """The nodes that `make` gives; while one is at fault it is tried again, until it is given up: others skip.

        `forgive` is called before `make` is once more.
        """
        while True:
            try:
                return make()
            except ProvisionError as error:
                if not self.not_ready(job, error):
                    raise
                forgive()

    def not_ready(self, job: Job, error: ProvisionError) -> bool:
        """A job's nodes could not be made ready; whether to try that once more before the node at fault is given up."""
        why = " ".join(str(error).split()).removeprefix(f"{error.node}: ")
        health = quarantine.of_error(job, error.node, why)
        self._journal.health(health)
        return self.limit is not None and bool(health.failed) and not self.unfit(job)

    def ran(self, job: Job, outcome: Outcome, result: RunResult) -> None:
        """A job was run on its nodes."""
        if job.is_multi_host:
            self._journal.health(quarantine.of_run(job, outcome, result))

    def unfit(self, job: Job) -> str:
        """Why a job's nodes are not used any more; "" where they are."""
        if self.limit is None:
            return ""
        self._look()
        given_up = quarantine.quarantined(self._seen, self.limit)
        return "; ".join(quarantine.told({node: given_up[node] for node in quarantine.names(job) if node in given_up}))

    def met(self, job: Job) -> bool:
        """Whether one of a job's nodes has come up in this part of the run, for whichever process."""
        self._look()
        mine = set(quarantine.names(job))
        return any(seen.came_up and mine.intersection(seen.nodes) for seen in self._seen)

    def given_up(self) -> frozenset[str]:
        """The nodes that are not used any more, as `quarantine.named` names them."""
        if self.limit is None:
            return frozenset()
        self._look()
        return frozenset(quarantine.quarantined(self._seen, self.limit))

    def _look(self) -> None:
        """Reads what was added to the journals since the last time; who writes may be about to end a line."""
        for path in sorted(self._journal.path.parent.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read[path] = self._read.get(path, 0) + len(line)
                    self._seen += _health(line, self._journal.part)


def _health(line: bytes, since: int) -> Iterator[Health]:
    """What a line tells of nodes, if it is of that part of the run: a run is taken up again once they are mended."""
    if _OURS in line[:200]:
        try:
            data = json.loads(line)
            if data.get("part", 0) >= since:
                yield from_json(Health, data)
        except (ValueError, RecordError):
            return
