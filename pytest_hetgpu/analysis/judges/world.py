"""Whether the ranks ran at all, in the world that was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pytest_hetgpu.analysis.judges._foreign import other_world
from pytest_hetgpu.analysis.judges.base import Case, Force, Judge, Opinion, node_of
from pytest_hetgpu.model.job import Job, Stack
from pytest_hetgpu.model.records import Hello
from pytest_hetgpu.model.verdict import Kind


class World(Judge):
    """Ranks say how many they are and which library they have loaded: a wrong MPI runs, and exits with 0."""

    name = "world"

    def opinions(self, case: Case) -> Iterator[Opinion]:
        hellos = [case.evidence.hellos[rank] for rank in sorted(case.evidence.hellos)]
        if not hellos:
            yield self.says(Kind.LAUNCH_FAILURE, "no rank reported: the ranks never ran", Force.VAGUE)
        yield from self._library(hellos, case.job)
        yield from self._size(hellos, case.job.demand.ranks)
        yield from self._counted(case)

    def _library(self, hellos: list[Hello], job: Job) -> Iterator[Opinion]:
        nodes = [node for node in job.nodes for _ in range(node.ranks)]
        for hello in hellos:
            node = node_of(hello, job, nodes)
            stack = (node.stack if node else None) or job.demand.stack
            if job.demand.backend:
                stack = _torch_of(stack, job.demand.backend)
            # A program that is not ours may be linked with no MPI, or not tell.
            if not is_of(stack, hello.library) and (hello.library or job.demand.foreign is None):
                loaded = f"{hello.library.partition(',')[0]} ({hello.libmpi or 'file unknown'})"
                asked = f"{stack.vendor} {stack.version} (stack {stack.name})"
                yield self.says(
                    Kind.LAUNCH_FAILURE, f"rank {hello.rank} loaded {loaded}, asked for was {asked}", Force.FINAL
                )
                return
            if not lies_under(stack.prefix, hello.libmpi):
                where = (
                    f"rank {hello.rank} loaded {hello.libmpi}, which is not under {stack.prefix} (stack {stack.name})"
                )
                yield self.says(Kind.LAUNCH_FAILURE, where, Force.FINAL)
                return

    def _size(self, hellos: list[Hello], ranks: int) -> Iterator[Opinion]:
        for hello in hellos:
            if hello.size != ranks:
                alone = ", every rank alone" if hello.size == 1 else ""
                yield self.says(
                    Kind.WRONG_RESULT, f"rank {hello.rank} is one of {hello.size}{alone}, asked for were {ranks} ranks"
                )
                return

    def _counted(self, case: Case) -> Iterator[Opinion]:
        """What a foreign program itself says of its world."""
        foreign, told = case.job.demand.foreign, case.evidence.program_output
        row = other_world(foreign, told) if foreign and told else None
        if row and told and foreign:
            found = "1 rank, so nothing moved" if row.ranks == 1 else f"{row.ranks} ranks"
            why = f"{told.tool} measured {found}; asked for were {foreign.ranks} ranks"
            yield self.says(Kind.WRONG_RESULT, why)


def _torch_of(stack: Stack, backend: str) -> Stack:
    """What ranks of torch.distributed report: a release of torch, the stack's MPI only where that is their backend."""
    version = stack.version if stack.vendor == "torch" else ""
    return replace(stack, vendor="torch", version=version, prefix=stack.prefix if backend == "mpi" else "")


def is_of(stack: Stack, library: str) -> bool:
    """Whether a library's own words name the stack's vendor and version (5.0 stands for every 5.0.x)."""
    words = re.sub(r"\([^()]*\)", "", library.partition(",")[0][:100]).lower()
    vendor = re.sub(r"[^a-z0-9]", "", stack.vendor.lower()) in re.sub(r"[^a-z0-9]", "", words)
    return vendor and re.search(rf"(?<![\d.]){re.escape(stack.version.lower())}(?!\d)", words) is not None


def lies_under(prefix: str, libmpi: str) -> bool:
    """Whether a library's file is the prefix's own, as far as paths tell; True where either is unknown.

    `/lib` is `/usr/lib`, as on every system of today. Prefixes and files are expected without links in them.
    """
    if not (prefix.startswith("/") and libmpi.startswith("/")):
        return True
    return _normal(libmpi).startswith(_normal(prefix).rstrip("/") + "/")


def _normal(path: str) -> str:
    path = re.sub(r"/(?:\./)*/*", "/", path)
    return f"/usr{path}" if re.match(r"/(?:lib|lib64|bin)(?:/|$)", path) else path
