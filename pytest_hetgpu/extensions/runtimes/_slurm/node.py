"""A node of an allocation, and the step that serves it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import HetgpuError, ProvisionError
from pytest_hetgpu.extensions.runtimes._slurm import client, messages
from pytest_hetgpu.extensions.runtimes._slurm.allocation import Allocation, NodeSlot
from pytest_hetgpu.extensions.runtimes.agent.link import BOOT, AgentConnection, boot_command
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment, OnTimeout, RemoteNode, ignore
from pytest_hetgpu.extensions.runtimes.batch.request import batch_of, cpus
from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe
from pytest_hetgpu.model.job import Command, Node
from pytest_hetgpu.model.outcome import RunResult

AGENT = "hetgpu-agent"

_ONLINE = "/sys/devices/system/cpu/online"
_DECIDING = 8.0  # seconds in which the controller decides why a step ended
# Variables of the agent's own step, which its children must not mistake for theirs.
_CLEAN = (
    "import os;[os.environ.pop(n) for n in list(os.environ) "
    'if n.startswith(("SLURM_","SLURMD_","SRUN_","PMI")) and n!="SLURM_CONF"];'
)


def opened(node: Node, deployment: Deployment) -> RemoteNode:
    """Return the node; the first caller waits in the Slurm queue for all nodes."""
    client.program("srun")
    nodes = [one for one in deployment.nodes if one.hardware.runtime == node.hardware.runtime]
    allocation = deployment.once("slurm", lambda closing: _allocated(nodes, deployment, closing))
    if isinstance(allocation, HetgpuError):
        raise allocation
    place = allocation.places[[one.index for one in nodes].index(node.index)]
    try:
        pipe = _Step(allocation, place)
    except OSError as error:
        raise ProvisionError(node.name, f"srun cannot be started: {error.strerror}") from error
    member = Allocated(node.name, AgentConnection(pipe, node.name), allocation, place)
    try:
        _check_binding(node, member)
    except BaseException:
        member.close()
        raise
    return member.settled(deployment)


def _allocated(nodes: list[Node], deployment: Deployment, closing: ExitStack) -> Allocation | HetgpuError:
    """Request the placement's allocation; return it, or the error that holds for all its nodes."""
    try:
        allocation = Allocation(nodes, deployment)
    except HetgpuError as error:
        return error
    closing.callback(allocation.close)
    return allocation


class Allocated(AgentNode):
    """A node of an allocation."""

    def __init__(self, name: str, link: AgentConnection, allocation: Allocation, place: NodeSlot) -> None:
        super().__init__(name, link)
        self.allocated_host = place.host
        self.walltime = allocation.walltime
        waited = f" ({allocation.waited})" if allocation.waited else ""
        self.provision_facts = {"slurm.job": allocation.job, "slurm.queued": f"{allocation.queued:.1f} s{waited}"}
        self._allocation = allocation

    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnTimeout = ignore) -> RunResult:
        """Implement `Runtime.run`. Cancel the leftovers of srun, because its ranks are not its children."""
        stepping = bool(command.argv) and Path(command.argv[0]).name == "srun"
        if stepping:
            command = replace(command, env={"SLURM_JOB_ID": self._allocation.job, **command.env})
        result = super().run(command, output=output, timeout=timeout, overdue=overdue)
        if stepping and (result.returncode != 0 or result.timed_out):
            self._cancel_steps()
        return result

    def stacks(self, request: Mapping[str, Any], seconds: float) -> bytes:
        """Implement `RemoteNode.stacks`, also for the ranks of srun on the node."""
        try:
            listed = [self.exec(("scontrol", "listpids", job)).stdout.decode() for job in self._allocation.jobs]
        except HetgpuError:
            listed = []
        pids = [int(row[0]) for text in listed for row in (line.split() for line in text.splitlines()) if _is_rank(row)]
        return super().stacks({**request, "pids": [pid for pid in pids if pid != self.link.hello.pid]}, seconds)

    def _cancel_steps(self) -> None:
        out, _ = client.ask("squeue", "-h", "-s", "-j", ",".join(self._allocation.jobs), "-o", "%i %j")
        steps = [line.split(None, 1) for line in out.splitlines()]
        ours = [step for step, *name in steps if name != [AGENT] and step.rpartition(".")[2].isdigit()]
        if ours:
            client.ask("scancel", "--signal=KILL", *ours)


class _Step(ProcessPipe):
    """The pipe of an agent: a step on one node that shares it with the steps of cells."""

    def __init__(self, allocation: Allocation, place: NodeSlot) -> None:
        self._allocation = allocation
        self._place = place
        interpreter, *options = boot_command()
        options[options.index(BOOT)] = _CLEAN + BOOT
        group = (f"--het-group={place.group}",) if allocation.several else ()
        super().__init__(
            (
                *(
                    client.program("srun"),
                    f"--jobid={allocation.job}",
                    *group,
                    f"--job-name={AGENT}",
                    "--overlap",
                    "--unbuffered",
                ),
                *("--nodes=1", "--ntasks=1", f"--nodelist={place.host}", "--mpi=none", "--cpu-bind=none"),
                *("--kill-on-bad-exit=0", "--quit-on-interrupt", "--chdir=/", interpreter, *options),
            ),
            client.environment(os.environ),
        )

    def why_ended(self) -> str:
        """Implement `Pipe.why_ended`: the end of the job by the controller's record, else of the node."""
        said = self.stderr()
        job, host = self._allocation.job, self._place.host
        if told := messages.ended(job, messages.state_said(said) or _verdict(self._allocation)):
            return told
        shown = "; ".join(said.splitlines()[-2:])
        return f"Slurm's step on {host} (job {job}) ended{f': {shown}' if shown else ''}"


def _verdict(allocation: Allocation) -> str:
    """Return the state of a job once the controller has decided; NODE_FAIL if a node of it is down."""
    latest = time.monotonic() + _DECIDING
    state = ""
    while time.monotonic() < latest:
        found = client.jobs(allocation.job)
        states = [one.get("JobState", "") for one in found]
        state = next((one for one in states if one not in ("RUNNING", "COMPLETING", "COMPLETED")), "")
        if state:
            return state
        hosts = ",".join(place.host for place in allocation.places)
        down, _ = client.ask("sinfo", "-h", "-N", "-n", hosts, "-o", "%T")
        if any(word.startswith(("down", "fail")) or word.endswith("*") for word in down.split()):
            return "NODE_FAIL"
        if not found:
            return ""
        time.sleep(0.2)
    return state


def _is_rank(row: list[str]) -> bool:
    """Return whether a line of `scontrol listpids` names a task: process, job, step, local and global rank."""
    return len(row) == 5 and row[0].isdigit() and row[3].isdigit()


def _check_binding(node: Node, member: AgentNode) -> None:
    """Raise ProvisionError if ranks are to be bound to CPUs that the node lacks."""
    batch = batch_of(node.hardware)
    if batch is None or not batch.binding:
        return
    text = (member.read([_ONLINE])[_ONLINE] or b"").decode(errors="replace").strip()
    wanted = set().union(*map(cpus, batch.binding))
    if text and (lacking := sorted(wanted - cpus(text))):
        raise ProvisionError(
            node.name,
            f"cpu_bind names CPU {lacking[0]}, and {member.allocated_host} has {text}: give the CPUs of this node",
        )
