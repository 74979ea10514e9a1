"""torchrun: an agent on each node starts the node's ranks, and the agents meet by c10d at the first node.

A single agent needs no rendezvous (`--standalone`). `remote/torchruns.py`, on the launch node, starts an agent per
context, on other nodes through ssh. It ends them all if one has failed. torchrun itself does neither. `:` separates
contexts, as in mpirun.

The backend c10d assigns ranks by the agents' addresses and ignores `--node-rank`
(torch/distributed/elastic/agent/server/api.py), so ranks report their node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pytest_hetgpu.extensions.launchers.base import Launcher, LaunchRequest, Rendezvous
from pytest_hetgpu.model.job import Command, RankContext, Stack

MODULE = ("-m", "torch.distributed.run")


class Torchrun(Launcher):
    """The torchrun of each node's interpreter. A rank that fails ends the job: there are no restarts."""

    per_node = True
    processes = frozenset(("ssh",))

    def unsuitable(self, stack: Stack, mca: Iterable[str], backend: str = "") -> str | None:
        if not backend:
            return (
                "starts programs of torch.distributed; this one calls MPI: give it transport gloo or nccl, or a "
                "backend (a `command` that does not call MPI: `mpi: false`)"
            )
        if backend == "mpi":
            return "cannot start ranks of backend mpi, which only an mpirun makes one world"
        names = ", ".join(sorted(mca))
        return f"takes no MCA parameters; this cell sets {names}" if names else None

    def labels(self, stack: Stack) -> str:
        return "torchrun"

    def environment(self, meeting: Rendezvous) -> Mapping[str, str]:
        # The prefix of each line of --tee is the global rank. Local ranks repeat on every node.
        return {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name}${rank}]:"}

    def command(self, start: LaunchRequest) -> Command:
        tokens = [start.stack.interpreter, f"{start.programs}/torchruns.py"]
        tokens += ["--ssh-config", start.ssh_config] if start.ssh_config else []
        for index, context in enumerate(start.contexts):
            tokens += [":"] * bool(index)
            tokens += ["-np", str(context.ranks), "-H", context.host]
            tokens += context.variable_tokens()
            tokens += _agent(start, index, context)
        return Command(tuple(tokens))


def _agent(start: LaunchRequest, index: int, context: RankContext) -> Iterator[str]:
    interpreter, *program = context.argv
    script = program[:1] and program[0].endswith(".py")
    yield from (interpreter, *MODULE) if script else (start.stack.interpreter, *MODULE)
    yield from ("--nnodes", str(len(start.contexts)), "--nproc-per-node", str(context.ranks))
    if len(start.contexts) == 1:
        yield "--standalone"
    else:
        meeting = start.rendezvous
        yield from ("--node-rank", str(index), "--rdzv-backend", "c10d", "--rdzv-id", str(meeting.port))
        yield from ("--rdzv-endpoint", f"{meeting.address}:{meeting.port}")
        yield from ("--rdzv-conf", f"is_host={'true' if index == meeting.index else 'false'}")
        yield from ("--local-addr", meeting.address if index == meeting.index else context.host)
    yield from ("--max-restarts", "0", "--tee", "3")
    yield from program if script else ("--no-python", *context.argv)
