"""Judge of the communicator: whether the ranks ran at all, with the requested size and MPI library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pytest_hetgpu.analysis.judges._external import wrong_rank_count
from pytest_hetgpu.analysis.judges.base import FinishedRun, Judge, Precedence, RatedFinding, node_of
from pytest_hetgpu.model.job import Job, Stack
from pytest_hetgpu.model.records import Hello
from pytest_hetgpu.model.verdict import Kind


class CommunicatorJudge(Judge):
    """Checks the size and library that ranks report: a wrong MPI runs, too, and exits with 0."""

    name = "world"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        hellos = [run.evidence.hellos[rank] for rank in sorted(run.evidence.hellos)]
        if not hellos:
            yield self.finding(Kind.LAUNCH_FAILURE, "no rank reported: the ranks never ran", Precedence.INDIRECT)
        yield from self._library(hellos, run.job)
        yield from self._size(hellos, run.job.demand.ranks)
        yield from self._counted(run)

    def _library(self, hellos: list[Hello], job: Job) -> Iterator[RatedFinding]:
        nodes = [node for node in job.nodes for _ in range(node.ranks)]
        for hello in hellos:
            node = node_of(hello, job, nodes)
            stack = (node.stack if node else None) or job.demand.stack
            if job.demand.backend:
                stack = _torch_of(stack, job.demand.backend)
            # An external program may be linked without MPI, or may not report its library.
            if not matches_stack(stack, hello.library) and (hello.library or job.demand.external is None):
                loaded = f"{hello.library.partition(',')[0]} ({hello.libmpi or 'file unknown'})"
                asked = f"{stack.vendor} {stack.version} (stack {stack.name})"
                why = f"rank {hello.rank} loaded {loaded}, asked for was {asked}{_worlds_of_one(hello, job)}"
                yield self.finding(Kind.LAUNCH_FAILURE, why, Precedence.OVERRIDING)
                return
            if not is_under_prefix(stack.prefix, hello.libmpi):
                where = (
                    f"rank {hello.rank} loaded {hello.libmpi}, which is not under {stack.prefix} (stack {stack.name})"
                )
                yield self.finding(Kind.LAUNCH_FAILURE, where, Precedence.OVERRIDING)
                return

    def _size(self, hellos: list[Hello], ranks: int) -> Iterator[RatedFinding]:
        for hello in hellos:
            if hello.size != ranks:
                alone = f", every rank alone: {ranks} ranks each report rank 0 of 1" if hello.size == 1 else ""
                yield self.finding(
                    Kind.WRONG_RESULT, f"rank {hello.rank} is one of {hello.size}, asked for were {ranks} ranks{alone}"
                )
                return

    def _counted(self, run: FinishedRun) -> Iterator[RatedFinding]:
        """Check the number of ranks that an external program reports."""
        foreign, told = run.job.demand.external, run.evidence.program
        row = wrong_rank_count(foreign, told) if foreign and told else None
        if row and told and foreign:
            found = "1 rank, so nothing moved" if row.ranks == 1 else f"{row.ranks} ranks"
            why = f"{told.tool} measured {found}; asked for were {foreign.ranks} ranks"
            yield self.finding(Kind.WRONG_RESULT, why)


def _worlds_of_one(hello: Hello, job: Job) -> str:
    """Return the words for ranks that the launcher of another MPI started: each makes a world of one."""
    if hello.size != 1 or job.demand.ranks == 1:
        return ""
    program = next(iter(job.command.argv), "the launcher").rpartition("/")[2]
    linked = hello.library.partition(",")[0]
    return (
        f": {job.demand.ranks} ranks each report rank 0 of 1: {program} of {job.demand.stack.name} started a program "
        f"linked with {linked}"
    )


def _torch_of(stack: Stack, backend: str) -> Stack:
    """Return the stack that ranks of torch.distributed report: a release of torch, plus the MPI of an mpi backend."""
    version = stack.version if stack.vendor == "torch" else ""
    return replace(stack, vendor="torch", version=version, prefix=stack.prefix if backend == "mpi" else "")


def matches_stack(stack: Stack, library: str) -> bool:
    """Return whether the library's version string names the stack's vendor and version (5.0 means every 5.0.x)."""
    words = re.sub(r"\([^()]*\)", "", library.partition(",")[0][:100]).lower()
    vendor = re.sub(r"[^a-z0-9]", "", stack.vendor.lower()) in re.sub(r"[^a-z0-9]", "", words)
    return vendor and re.search(rf"(?<![\d.]){re.escape(stack.version.lower())}(?!\d)", words) is not None


def is_under_prefix(prefix: str, libmpi: str) -> bool:
    """Return whether a library's file is inside the prefix, judging by paths; True if either is unknown.

    `/lib` counts as `/usr/lib`, as on every current system. Prefixes and files must not contain links.
    """
    if not (prefix.startswith("/") and libmpi.startswith("/")):
        return True
    return _normal(libmpi).startswith(_normal(prefix).rstrip("/") + "/")


def _normal(path: str) -> str:
    path = re.sub(r"/(?:\./)*/*", "/", path)
    return f"/usr{path}" if re.match(r"/(?:lib|lib64|bin)(?:/|$)", path) else path
