"""What Slurm says, in words for who can do something about it."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.runtimes._slurm import client, messages


@pytest.mark.parametrize(
    "reason", ["PartitionNodeLimit", "PartitionConfig", "BadConstraints", "JobHeldAdmin", "AssocGrpBillingMinutes"]
)
def test_what_no_waiting_ends_has_advice(reason: str) -> None:
    assert messages.never(reason)


@pytest.mark.parametrize("reason", ["Resources", "Priority", "None", "BeginTime", ""])
def test_what_waiting_may_end_is_waited_for(reason: str) -> None:
    assert messages.never(reason) == ""
    assert messages.passing(reason) == ""


@pytest.mark.parametrize(
    "reason",
    [
        "ReqNodeNotAvail, UnavailableNodes:c1",
        "ReqNodeNotAvail, Reserved for maintenance",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "Reservation",
        "AssocGrpNodeLimit",
        "QOSMaxNodePerUserLimit",
    ],
)
def test_what_may_pass_is_waited_for_with_advice(reason: str) -> None:
    assert messages.never(reason) == ""
    assert messages.passing(reason)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("salloc: error: Munge encode failed: Failed to access socket", "munge does not answer here"),
        ("salloc: error: Job submit/allocate failed: Invalid partition name specified", "no such partition"),
        ("salloc: error: Job submit/allocate failed: Invalid account or account/partition combination", "sacctmgr"),
        ("salloc: error: Unable to contact slurm controller (connect failure)", "scontrol ping"),
        ("salloc: fatal: Could not establish a configuration source", "set SLURM_CONF"),
    ],
)
def test_a_refusal_is_one_line_with_what_to_do(said: str, advice: str) -> None:
    text = messages.refused(f"salloc: Pending job allocation 3\n{said}\n{said}")
    assert advice in text
    assert "\n" not in text
    assert "Pending" not in text
    assert text.count(said.partition("error: ")[2] or "configuration source") == 1


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("PREEMPTED", "Slurm job 7 was preempted by another job"),
        ("CANCELLED", "Slurm job 7 was cancelled (scancel)"),
        ("NODE_FAIL", "Slurm job 7 lost a node: Slurm gave it up"),
        ("TIMEOUT", "Slurm job 7 reached its time limit: give `time` of `slurm` more"),
        ("RUNNING", ""),
    ],
)
def test_how_a_job_ended(state: str, text: str) -> None:
    assert messages.ended("7", state) == text


def test_a_step_tells_why_it_was_ended() -> None:
    assert messages.state_said("error: *** STEP 5.0 ON c1 CANCELLED AT 2026-11-22T19:14:20 DUE TO PREEMPTION ***") == (
        "PREEMPTED"
    )
    assert messages.state_said("srun: error: Node failure on c2") == "NODE_FAIL"
    assert messages.state_said("*** STEP 5.0 ON c1 CANCELLED AT 2026-11-22T19:14:20 ***") == ""


def test_a_client_gives_no_credentials_to_its_steps() -> None:
    given = {
        "GITHUB_TOKEN": "ghp_x",
        "PGPASSWORD": "x",
        "SSH_AUTH_SOCK": "/run/agent",
        "SLURM_JWT": "t",
        "PATH": "/bin",
    }
    assert set(client.environment(given)) == {"SLURM_JWT", "PATH", "LC_ALL", "SLURM_TIME_FORMAT"}


def test_a_client_knows_nothing_of_a_job_that_we_are_in() -> None:
    found = client.environment(
        {"SLURM_JOB_ID": "3", "SLURM_CONF": "/c", "SLURM_JWT": "t", "SALLOC_ACCOUNT": "p", "PATH": "/bin"}
    )
    assert {name: found.get(name) for name in ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_JWT", "SALLOC_ACCOUNT")} == {
        "SLURM_JOB_ID": None,
        "SLURM_CONF": "/c",
        "SLURM_JWT": "t",
        "SALLOC_ACCOUNT": "p",
    }
