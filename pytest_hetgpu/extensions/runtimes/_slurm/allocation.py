"""One allocation, requested by salloc under a keeper process, which ends it when this process ends in any way."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.extensions.runtimes._slurm import client, messages
from pytest_hetgpu.extensions.runtimes._slurm.pending_reasons import Fields, PendingJob, seconds
from pytest_hetgpu.extensions.runtimes.base import Deployment, Walltime
from pytest_hetgpu.extensions.runtimes.batch.request import batch_of, components
from pytest_hetgpu.model.job import Node

_FIRST_LOOK, _LONGEST_LOOK = 0.3, 10.0  # seconds between checks why a job waits
_BOOTING = 2.0  # seconds between checks whether nodes are up
_GIVING_BACK = 15.0  # seconds; the keeper continues by itself if the controller is away
_NUMBER = re.compile(r"(?:[Jj]ob allocation|job) (\d+)")
_GRANTED = "Granted job allocation"


@dataclass(frozen=True)
class NodeSlot:
    """The location of a node in an allocation: its host, and its component."""

    host: str
    group: int


class Keeper:
    """The process that holds an allocation. Its output comes as lines, then None at the end."""

    def __init__(self, argv: Sequence[str]) -> None:
        text = (REMOTE / "hold_allocation.py").read_text(encoding="utf-8")
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            (sys.executable, "-I", "-c", text, *argv),
            env=client.environment(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Let the keeper release the allocation, and wait until it has."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GIVING_BACK)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                self.lines.put(line.decode(errors="replace").rstrip())
        self.lines.put(None)


class Allocation:
    """The nodes of a placement, owned until `close`. `queued` are the seconds that it waited."""

    def __init__(self, nodes: Sequence[Node], deployment: Deployment) -> None:
        """Wait until the nodes are ready; raise ProvisionError if they cannot be, or not in time."""
        self._name = ", ".join(dict.fromkeys(node.hardware.name for node in nodes))
        self._waiting = PendingJob()
        self._keeper = Keeper((client.program("salloc"), *options(nodes, deployment)))
        try:
            asked = time.monotonic()
            patience = min(batch.queue for batch in map(batch_of, (node.hardware for node in nodes)) if batch)
            self.job = self._granted(patience, deployment)
            found = self._booted(asked + patience, patience, deployment)
            self.queued = time.monotonic() - asked
            self.walltime = walltime(found, time.monotonic())
            self.jobs, self.places = self._placed(nodes, found)
        except BaseException:
            self._keeper.close()
            raise

    @property
    def several(self) -> bool:
        """Return whether the allocation is a heterogeneous job."""
        return len(self.jobs) > 1

    @property
    def waited(self) -> str:
        """Return the latest pending reason in the words of Slurm; "" if the job was not pending."""
        return ", ".join(self._waiting.reasons)

    def close(self) -> None:
        """Release the allocation."""
        self._keeper.close()

    def _granted(self, patience: float, deployment: Deployment) -> str:
        said: list[str] = []
        deadline, pause = time.monotonic() + patience, _FIRST_LOOK
        while True:
            line: str | None = ""
            with suppress(queue.Empty):
                line = self._keeper.lines.get(timeout=pause)
            if line is None:
                raise ProvisionError(self._name, messages.refused("\n".join(said)))
            said += [line] if line else []
            number = next((found[1] for one in said if (found := _NUMBER.search(one))), "")
            if _GRANTED in line:
                return number
            if deployment.abandoned.is_set():
                raise ProvisionError(self._name, f"Slurm job {number} was given up while it waited")
            if not line and number:
                self._look(number, deadline, patience)
                pause = min(2 * pause, _LONGEST_LOOK, max(_FIRST_LOOK, deadline - time.monotonic()))

    def _booted(self, deadline: float, patience: float, deployment: Deployment) -> Sequence[Fields]:
        """Return the components once their nodes are up: clouds and sites that save power boot nodes on demand."""
        while True:
            found = client.jobs(self.job)
            if not any("CONFIGURING" in one.get("JobState", "") for one in found):
                return found
            if deployment.abandoned.wait(_BOOTING):
                raise ProvisionError(self._name, f"Slurm job {self.job} was given up while its nodes booted")
            if time.monotonic() >= deadline:
                why = f"the nodes of Slurm job {self.job} were not up after {patience:g} s (CONFIGURING)"
                raise ProvisionError(self._name, f"{why}: give `queue` of `slurm` more seconds")

    def _look(self, job: str, deadline: float, patience: float) -> None:
        """Raise ProvisionError for a job that can never start, or that has waited long enough."""
        now = time.monotonic()
        if never := self._waiting.look(client.jobs(job), client.partition, now):
            raise ProvisionError(self._name, f"Slurm job {job} can never start {never}")
        if now >= deadline:
            why = f"Slurm job {job} did not start in {patience:g} s ({self._waiting.why()})"
            raise ProvisionError(self._name, f"{why}: give `queue` of `slurm` more seconds")

    def _placed(self, nodes: Sequence[Node], found: Sequence[Fields]) -> tuple[tuple[str, ...], tuple[NodeSlot, ...]]:
        places = []
        for group, component in enumerate(found):
            out, _ = client.ask("scontrol", "show", "hostnames", component.get("NodeList", ""))
            places += [NodeSlot(host, group) for host in out.split()]
        if len(places) < len(nodes):
            raise ProvisionError(self._name, f"Slurm job {self.job} has {len(places)} nodes of {len(nodes)}")
        return tuple(one["JobId"] for one in found), tuple(places)


def walltime(components: Sequence[Fields], now: float) -> Walltime | None:
    """Return the remaining time of an allocation by the clock of Slurm; None for one without a limit."""
    told = ((seconds(one.get("TimeLimit", "")), seconds(one.get("RunTime", "")) or 0) for one in components)
    terms = [Walltime(now - run, float(limit)) for limit, run in told if limit]
    return min(terms, key=lambda one: one.began + one.seconds, default=None)


def options(nodes: Sequence[Node], deployment: Deployment) -> tuple[str, ...]:
    """Return the options of salloc for a placement; its labels are the comment of the job."""
    batches = [batch for node in nodes if (batch := batch_of(node.hardware))]
    comment = ",".join(f"{key}={value}" for key, value in sorted(deployment.labels.items()))
    return components(f"hetgpu-{deployment.name}", batches, comment)
