"""The reasons why a job waits, check by check, and whether waiting can end them. Pure.

Slurm gives a reason before it has examined a job. At submission, a job beyond any limit of its partition has the reason
PartitionConfig (src/slurmctld/job_mgr.c, _select_nodes_parts). Later the scheduler names the limit (job_limits_check).
That may take 0.7 s on an idle controller, and its `batch_sched_delay` and more on a busy one. So a reason counts after
two checks in a row, and the partition's own limits explain it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from pytest_hetgpu.extensions.runtimes._slurm import messages

UNSETTLED = 20.0  # seconds until PartitionConfig counts as a reason, if no limit explains it

Fields = Mapping[str, str]
"""The `scontrol -o show` record of a job or a partition."""

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_ENDLESS = ("UNLIMITED", "INFINITE")


class PendingJob:
    """The state of a pending job. `reasons` are the latest, in the words of Slurm."""

    def __init__(self) -> None:
        self.reasons: tuple[str, ...] = ()
        self._since: dict[str, float] = {}

    def look(self, jobs: Sequence[Fields], partition: Callable[[str], Fields], now: float) -> str:
        """Return `(REASON): explanation and advice` for a job that can never start; "" while it may.

        `jobs` are its components, `now` is in seconds; `partition` returns the Slurm record of a partition by name.
        """
        pending = [job for job in jobs if job.get("JobState") == "PENDING"]
        reasons = [job.get("Reason", "").replace("_", " ") for job in pending]
        self._since = {reason: self._since.get(reason, now) for reason in reasons}
        self.reasons = tuple(dict.fromkeys(filter(None, reasons)))
        for job, reason in zip(pending, reasons, strict=True):
            if never := self._never(job, reason, partition, now):
                return never
        return ""

    def why(self) -> str:
        """Return the latest reasons, and their remedies."""
        advice = next((found for one in self.reasons if (found := messages.never(one) or messages.passing(one))), "")
        return (", ".join(self.reasons) or "it gives no reason") + (f": {advice}" if advice else "")

    def _never(self, job: Fields, reason: str, partition: Callable[[str], Fields], now: float) -> str:
        if not (advice := messages.never(reason)):
            return ""
        if reason.startswith("Partition"):
            # A job that names several partitions starts in any of them.
            limits = [beyond(job, partition(name)) for name in job.get("Partition", "").split(",") if name]
            if limits and all(found for found, _ in limits):
                return f"({limits[0][0]}): {limits[0][1]}"
        settled = UNSETTLED if reason == "PartitionConfig" else 0.0
        seen = now - self._since[reason]
        return f"({reason}): {advice}" if seen > settled else ""


def beyond(job: Fields, partition: Fields) -> tuple[str, str]:
    """Return the Slurm reason for the partition limit that a job exceeds, and advice; ("", "") if it exceeds none.

    The limits and their order are those of _part_access_check and job_limits_check of src/slurmctld/job_mgr.c.
    """
    return next(_beyond(job, partition), ("", ""))


def _beyond(job: Fields, partition: Fields) -> Iterator[tuple[str, str]]:
    name, other = partition.get("PartitionName", ""), "see `sinfo`, or take another `partition`"
    limit, longest = job.get("TimeLimit", ""), seconds(partition.get("MaxTime", ""))
    if longest is not None and (limit in _ENDLESS or (seconds(limit) or 0) > longest):
        said = f"`time` asks for {limit}, and partition {name} allows {partition['MaxTime']}"
        yield "PartitionTimeLimit", f"{said}: give less, or take another `partition`"
    nodes = _count(job.get("NumNodes", ""))
    least, most, there = (_count(partition.get(key, "")) for key in ("MinNodes", "MaxNodes", "TotalNodes"))
    if nodes is not None:
        asked = f"{nodes} {'is' if nodes == 1 else 'are'} asked for: {other}"
        if there is not None and nodes > there:
            yield "PartitionNodeLimit", f"partition {name} has {_nodes(there)}, and {asked}"
        if most is not None and nodes > most:
            yield "PartitionNodeLimit", f"partition {name} gives a job at most {_nodes(most)}, and {asked}"
        if least is not None and nodes < least:
            yield "PartitionNodeLimit", f"partition {name} gives a job at least {_nodes(least)}, and {asked}"
    if partition.get("State") == "DOWN":
        yield "PartitionDown", f"partition {name} is down: {other}"
    if partition.get("State") == "INACTIVE":
        yield "PartitionInactive", f"partition {name} takes no jobs now: {other}"


def seconds(text: str) -> int | None:
    """Convert a time in the format of Slurm (`1-00:30:00`, `30:00`); return None for no limit, and for other text."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    # `D-H:M:S` is filled from the left, `M:S` from the right.
    filled = [*parts, *[0] * (3 - len(parts))] if days else [*[0] * (3 - len(parts)), *parts]
    return int(days or 0) * 86400 + filled[0] * 3600 + filled[1] * 60 + filled[2]


def _count(text: str) -> int | None:
    """Convert a number of nodes, the least of a range; return None for no limit."""
    first = text.partition("-")[0]
    return int(first) if first.isdigit() else None


def _nodes(number: int) -> str:
    return f"{number} node{'s' * (number != 1)}"
