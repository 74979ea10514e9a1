"""Why a job waits, by what Slurm 22.05 answered look by look."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.runtimes._slurm import client
from pytest_hetgpu.extensions.runtimes._slurm.allocation import walltime
from pytest_hetgpu.extensions.runtimes._slurm.pending_reasons import UNSETTLED, PendingJob, beyond, seconds
from pytest_hetgpu.extensions.runtimes.base import Walltime

PARTITION = (
    "PartitionName=cuda AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=NONE DisableRootJobs=NO Hidden=NO MaxNodes={most} MaxTime=01:00:00 MinNodes={least} LLN=NO "
    "MaxCPUsPerNode=UNLIMITED Nodes=c[1-2] PriorityTier=1 ReqResv=NO OverTimeLimit=NONE State={state} TotalCPUs=8 "
    "TotalNodes=2"
)
JOB = (
    "JobId=9 JobName=interactive Account=(null) QOS=(null) JobState={state} Reason={reason} Dependency=(null) "
    "TimeLimit={time} TimeMin=N/A Partition={partition} NodeList= NumNodes={nodes} NumCPUs=1 NumTasks=1"
)


def partition(name: str = "cuda", *, state: str = "UP", most: str = "UNLIMITED", least: str = "0") -> dict[str, str]:
    return {**client.fields(PARTITION.format(state=state, most=most, least=least)), "PartitionName": name}


def job(
    reason: str = "None", *, state: str = "PENDING", time: str = "00:30:00", nodes: str = "1", name: str = "cuda"
) -> dict[str, str]:
    return client.fields(JOB.format(reason=reason, state=state, time=time, nodes=nodes, partition=name))


def test_the_reason_of_a_job_that_the_scheduler_has_not_seen_is_not_taken_for_what_it_says() -> None:
    """0.3 s after its submission a job of nine days had PartitionConfig, 0.4 s later PartitionTimeLimit."""
    waiting = PendingJob()
    first = waiting.look([job("PartitionConfig", time="9-00:00:00")], partition, 0.3)
    later = PendingJob().look([job("PartitionTimeLimit", time="9-00:00:00")], partition, 0.9)
    assert first == later
    assert first == (
        "(PartitionTimeLimit): `time` asks for 9-00:00:00, and partition cuda allows 01:00:00: give less, or take "
        "another `partition`"
    )


def test_a_reason_that_no_limit_explains_is_waited_for_a_while() -> None:
    waiting = PendingJob()
    jobs = [job("PartitionConfig")]
    assert [bool(waiting.look(jobs, partition, now)) for now in (0.3, 0.9, UNSETTLED)] == [False] * 3
    assert waiting.look(jobs, partition, UNSETTLED + 1).startswith("(PartitionConfig): the partition does not take it")


def test_a_reason_that_goes_away_begins_anew() -> None:
    waiting = PendingJob()
    looks = [("PartitionConfig", 0.0), ("Resources", 5.0), ("PartitionConfig", 6.0), ("PartitionConfig", UNSETTLED + 1)]
    assert [waiting.look([job(reason)], partition, now) for reason, now in looks] == [""] * 4
    assert waiting.reasons == ("PartitionConfig",)


def test_a_reason_counts_when_it_is_seen_twice() -> None:
    waiting = PendingJob()
    assert waiting.look([job("BadConstraints")], partition, 0.3) == ""
    assert waiting.look([job("BadConstraints")], partition, 0.9).startswith("(BadConstraints): no node has what")


def test_each_component_of_a_heterogeneous_job_is_looked_at() -> None:
    found = PendingJob().look([job("None"), job("PartitionConfig", nodes="3")], partition, 0.3)
    assert found.startswith("(PartitionNodeLimit): partition cuda has 2 nodes, and 3 are asked for")


def test_a_job_that_runs_waits_for_nothing() -> None:
    waiting = PendingJob()
    assert [waiting.look([job("BadConstraints", state="RUNNING")], partition, now) for now in (0.3, 0.9)] == ["", ""]
    assert waiting.reasons == ()


def test_nodes_that_are_not_there_now_are_waited_for_and_named() -> None:
    waiting = PendingJob()
    for now in (0.3, 0.9, 500.0):
        assert waiting.look([job("ReqNodeNotAvail,_UnavailableNodes:c1")], partition, now) == ""
    assert waiting.why() == (
        "ReqNodeNotAvail, UnavailableNodes:c1: nodes that it needs are down, drained or reserved: see `sinfo -R` and "
        "`scontrol show res`"
    )


def test_of_several_partitions_one_that_takes_the_job_is_enough() -> None:
    def has(name: str) -> dict[str, str]:
        return partition(name, state="DOWN" if name == "closed" else "UP")

    assert PendingJob().look([job("PartitionConfig", name="closed,cuda")], has, 0.3) == ""
    assert PendingJob().look([job("PartitionConfig", name="closed")], has, 0.3).startswith("(PartitionDown): partition")


@pytest.mark.parametrize(
    ("asked", "has", "found"),
    [
        ({}, {}, ""),
        ({"time": "UNLIMITED"}, {}, "PartitionTimeLimit"),
        ({"time": "Partition_Limit"}, {}, ""),
        ({"time": "01:00:00"}, {}, ""),
        ({"time": "01:00:01"}, {}, "PartitionTimeLimit"),
        ({"nodes": "2"}, {}, ""),
        ({"nodes": "2-2"}, {"most": "1"}, "PartitionNodeLimit"),
        ({"nodes": "1"}, {"least": "2"}, "PartitionNodeLimit"),
        ({}, {"state": "DOWN"}, "PartitionDown"),
        ({}, {"state": "INACTIVE"}, "PartitionInactive"),
    ],
)
def test_limits_of_a_partition(asked: dict[str, str], has: dict[str, str], found: str) -> None:
    reason, advice = beyond(job(**asked), partition(**has))
    assert reason == found
    assert bool(advice) == bool(found)


def test_a_partition_that_nobody_tells_of_has_no_limits() -> None:
    assert beyond(job(time="9-00:00:00"), {}) == ("", "")


@pytest.mark.parametrize(
    ("text", "found"),
    [("01:00:00", 3600), ("1-00:30:00", 88200), ("30:00", 1800), ("2-0", 172800), ("UNLIMITED", None), ("", None)],
)
def test_times_as_slurm_prints_them(text: str, found: int | None) -> None:
    assert seconds(text) == found


def test_how_long_an_allocation_has_is_what_slurm_gave_it() -> None:
    whole = {"TimeLimit": "00:30:00", "RunTime": "00:00:10"}
    assert walltime([whole], 1000.0) == Walltime(990.0, 1800.0)
    assert walltime([whole, {"TimeLimit": "00:05:00", "RunTime": "00:00:10"}], 1000.0) == Walltime(990.0, 300.0)
    assert walltime([{"TimeLimit": "1-00:00:00"}], 1000.0) == Walltime(1000.0, 86400.0)
    assert walltime([{"TimeLimit": "UNLIMITED", "RunTime": "00:00:10"}], 1000.0) is None
