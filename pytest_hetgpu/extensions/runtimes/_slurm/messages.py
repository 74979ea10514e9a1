"""Messages of the Slurm clients, reasons of pending jobs, and states of ended jobs, each with advice. Pure."""

from __future__ import annotations

import re

# Pending reasons of squeue that waiting cannot end (slurm.h, enum job_state_reason), and their remedies.
_NEVER = {
    "PartitionNodeLimit": "the partition does not give so many nodes: see `sinfo`, or take another `partition`",
    "PartitionConfig": "the partition does not take it, and not for its nodes, time or state: see who and what it "
    "allows by `scontrol show partition`",
    "PartitionTimeLimit": "`time` is longer than the partition allows: see `sinfo -o '%P %l'`",
    "PartitionDown": "the partition is down: see `sinfo`, or take another `partition`",
    "PartitionInactive": "the partition takes no jobs now: see `sinfo`, or take another `partition`",
    "BadConstraints": "no node has what is asked for: see `gres` and `constraint`, and `sinfo -o '%N %G %f'`",
    "AccountNotAllowed": "the partition does not take this `account`: see `sacctmgr show assoc user=$USER`",
    "QOSNotAllowed": "the partition does not take this `qos`: see `sacctmgr show assoc user=$USER`",
    "InvalidAccount": "there is no such `account`: see `sacctmgr show assoc user=$USER`",
    "InvalidQOS": "there is no such `qos`: see `sacctmgr show qos`",
    "ReservationDeleted": "the `reservation` is gone: see `scontrol show reservation`",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held: `scontrol release` lets it go",
    "DependencyNeverSatisfied": "what it depends on did not happen",
    "AssocMaxNodesPerJobLimit": "the `account` may not have so many nodes in one job",
    "QOSMaxNodePerJobLimit": "the `qos` does not allow so many nodes in one job",
    "QOSMaxWallDurationPerJobLimit": "`time` is longer than the `qos` allows",
    "AssocMaxWallDurationPerJobLimit": "`time` is longer than the `account` allows",
    "AssocGrpBillingMinutes": "the `account` has no budget left",
    "AssocGrpCPUMinutesLimit": "the `account` has no budget left",
}
# Reasons that may pass, though an administrator may have to act.
_PASSING = {
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved: see `sinfo -R` and `scontrol show res`",
    "Nodes required for job are DOWN": "see `sinfo -R` and `scontrol show res`",
    "Reservation": "the `reservation` is not free, or has not begun: see `scontrol show reservation`",
    "AssocGrpNodeLimit": "the `account` has as many nodes as it may: see `sacctmgr show assoc user=$USER`",
    "QOSMaxNodePerUserLimit": "you have as many nodes as the `qos` allows: see `sacctmgr show qos`",
}

_ADVICE = (
    (r"[Mm]unge|authentication|Protocol authentication", "munge does not answer here: `systemctl status munge`"),
    (
        r"nvalid partition",
        "there is no such partition: see `sinfo -o %P`, and `slurm: partition` of matrix and inventory",
    ),
    (r"nvalid account", "see `sacctmgr show assoc user=$USER`, and `slurm: account` of the inventory"),
    (r"nvalid (?:qos|QOS)", "see `sacctmgr show qos`, and `slurm: qos` of the inventory"),
    (r"nvalid (?:generic resource|Trackable|TRES|gres|GRES)", "see `sinfo -o '%N %G'`, and `gres` or `gpus`"),
    (r"node configuration is not available", "no node has what is asked for: see `sinfo -o '%N %c %G %f'`"),
    (r"nvalid feature", "see `sinfo -o '%N %f'`, and `constraint`"),
    (r"eservation", "see `scontrol show reservation`"),
    (r"time limit", "see `sinfo -o '%P %l'`, and `time`"),
    (r"More processors requested|Node count specification", "the partition is too small for it: see `sinfo`"),
    (
        r"[Uu]nable to contact slurm controller|Connection refused|Unable to resolve",
        "the controller is away: `scontrol ping`",
    ),
    (r"configuration source|cannot stat file|slurm\.conf", "this machine is no client of a Slurm: set SLURM_CONF"),
)

_ENDS = (
    ("PREEMPTED", "was preempted by another job"),
    ("NODE_FAIL", "lost a node: Slurm gave it up"),
    ("TIMEOUT", "reached its time limit: give `time` of `slurm` more"),
    ("DEADLINE", "reached its deadline"),
    ("OUT_OF_MEMORY", "was killed for its memory"),
    ("CANCELLED", "was cancelled (scancel)"),
)
_SAID = (
    ("DUE TO PREEMPTION", "PREEMPTED"),
    ("DUE TO NODE FAILURE", "NODE_FAIL"),
    ("Node failure on", "NODE_FAIL"),
    ("DUE TO TIME LIMIT", "TIMEOUT"),
)


def never(reason: str) -> str:
    """Return the advice for a pending reason that waiting cannot end; "" if waiting may help."""
    return _NEVER.get(reason.partition(",")[0].strip(), "")


def passing(reason: str) -> str:
    """Return the advice for a pending reason that may end; "" if the job only has to wait."""
    return _PASSING.get(reason.partition(",")[0].strip(), "")


def refused(said: str) -> str:
    """Return why salloc gave no allocation: its own message, and advice."""
    lines = [re.sub(r"^(?:salloc|srun|scontrol|squeue): (?:error: |fatal: )?", "", line) for line in said.splitlines()]
    words = [
        line for line in dict.fromkeys(lines) if line and not re.match(r"(?:Pending|job \d+ (?:queued|has))", line)
    ]
    text = "; ".join(word[:200] for word in words[:3]) or "it printed nothing"
    advice = next((advice for pattern, advice in _ADVICE if re.search(pattern, said)), "")
    return f"Slurm refused the allocation: {f'{advice} ({text})' if advice else text}"


def state_said(said: str) -> str:
    """Return the state of a job that srun or slurmstepd printed; "" if they printed none."""
    return next((state for words, state in _SAID if words in said), "")


def ended(job: str, state: str) -> str:
    """Return how one of this run's jobs ended, in words; "" for a state without meaning here."""
    return next((f"Slurm job {job} {words}" for name, words in _ENDS if state.startswith(name)), "")
