"""mpirun: uniform jobs, and MPMD where environment or program differ between nodes."""

from __future__ import annotations

from pytest_hetgpu.launchers.base import Launcher, Start
from pytest_hetgpu.model import Command, RankContext


class Mpirun(Launcher):
    """Open MPI's mpirun."""

    def command(self, start: Start) -> Command:
        tokens = [start.stack.launcher]
        if start.root:
            tokens.append("--allow-run-as-root")
        if sum(context.ranks for context in start.contexts) > start.cores:
            tokens += ["--map-by", ":OVERSUBSCRIBE"]
        for name, value in sorted(start.mca.items()):
            tokens += ["--mca", name, value]
        for index, context in enumerate(start.contexts):
            tokens += [":"] * bool(index) + _context(context)
        return Command(tuple(tokens))


def _context(context: RankContext) -> list[str]:
    # Not with mpirun's -x: Open MPI 5 leaks it into the contexts that follow.
    env = ["env", *(f"{name}={value}" for name, value in sorted(context.env.items()))] if context.env else []
    return ["-np", str(context.ranks), *env, *context.argv]
