"""mpirun of Open MPI and of MPICH (Hydra): uniform jobs, and MPMD if environment or program differ between nodes.

| | Open MPI 4 | Open MPI 5 | MPICH |
|---|---|---|---|
| as root | `--allow-run-as-root` | the same | nothing |
| more ranks than cores | `--oversubscribe` | `--map-by :OVERSUBSCRIBE` | nothing |
| MCA parameters | `--mca NAME VALUE` before the contexts | the same | has none |
| hosts | `-H a:1,b:1` in each context | the same | `-hosts a:1,b:1` before the contexts |
| the ssh to them | `--mca plm_rsh_agent "ssh -F FILE"` | `--prtemca plm_ssh_agent ...` | `HYDRA_LAUNCHER_EXTRA_ARGS` |
| their prefix, if another | `--prefix DIR` | the same | nothing |
| nodes that share a host | `--bind-to none` | the same | nothing: it does not bind |
| all ranks on this host | `OMPI_MCA_plm=isolated`, or it needs an ssh | nothing | nothing |
| rank before each line | `--tag-output` | `--output tag` | `-prepend-pattern "[1,%r]<stdout>:"` |
| daemons' interface | `--mca oob_tcp_if_include DEV` | `--prtemca prte_if_include DEV` | `-iface DEV` |

Each context sets variables with `env K=V`, or with the reader of a file in a command that is started. Open MPI 5 leaks
`-x` into the following contexts, and MPICH has none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from pytest_hetgpu.extensions.launchers.base import Launcher, LaunchRequest
from pytest_hetgpu.model.job import Command, RankContext, Stack

LOCAL = "localhost"
OPEN_MPI, MPICH = "Open MPI", "MPICH"


class Mpirun(Launcher):
    """The mpirun of the stack.

    It starts its daemons by ssh, or by srun inside an allocation of Slurm. They end after it, on a busy machine late.
    """

    processes = frozenset(
        (
            *("mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec", "mpiexec.hydra", "ssh", "srun"),
            *("orterun", "orted", "prterun", "prte", "prted"),
            *("hydra_pmi_proxy", "hydra_bstrap_proxy"),
        )
    )

    def unsuitable(self, stack: Stack, mca: Iterable[str], backend: str = "") -> str | None:
        if stack.vendor not in (OPEN_MPI, MPICH):
            return f"cannot start {stack.vendor} (known: {MPICH}, {OPEN_MPI})"
        names = ", ".join(sorted(mca))
        return (
            f"of {stack.vendor} takes no MCA parameters; this cell sets {names}"
            if names and stack.vendor == MPICH
            else None
        )

    def labels(self, stack: Stack) -> str:
        # PRRTE prints a blank after its label.
        return "open-mpi-4" if stack.vendor == MPICH or 0 < stack.major < 5 else "open-mpi-5"

    def command(self, start: LaunchRequest) -> Command:
        groups = [tuple(group) for _, group in itertools.groupby(start.contexts, key=_what)]
        if start.stack.vendor != MPICH:
            return Command((start.stack.launcher, *_open_mpi(start, groups)), _alone(start))
        env = {"HYDRA_LAUNCHER_EXTRA_ARGS": f"-F {start.ssh_config}"} if start.ssh_config else {}
        return Command((start.stack.launcher, *_hydra(start, groups)), env)


Group = tuple[RankContext, ...]
"""Neighbours that differ in their hosts only: one context of the command line."""


def _what(context: RankContext) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    return context.argv, tuple(sorted(context.env.items()))


def _alone(start: LaunchRequest) -> dict[str, str]:
    """Return the variable that lets Open MPI 4 run without ssh; a parameter of the matrix overrides it."""
    old = 0 < start.stack.major < 5
    return {"OMPI_MCA_plm": "isolated"} if old and not _hosted(start.contexts) and not start.ssh_config else {}


def _open_mpi(start: LaunchRequest, groups: Sequence[Group]) -> list[str]:
    hosted = _hosted(start.contexts)
    tokens = ["--allow-run-as-root"] if start.root else []
    # Given hosts have slots.
    if not hosted and _ranks(start.contexts) > start.cores:
        tokens += ["--oversubscribe"] if 0 < start.stack.major < 5 else ["--map-by", ":OVERSUBSCRIBE"]
    if start.labelled:
        tokens += ["--tag-output"] if 0 < start.stack.major < 5 else ["--output", "tag"]
    tokens += _daemons(start)
    for name, value in sorted(start.mca.items()):
        tokens += ["--mca", name, value]
    return tokens + _contexts(groups, hosted)


def _daemons(start: LaunchRequest) -> list[str]:
    """Return the options for the daemons of Open MPI: ssh, interface, prefix (since 5 with the names of PRRTE)."""
    old = 0 < start.stack.major < 5
    option = "--mca" if old else "--prtemca"
    ssh = [option, "plm_rsh_agent" if old else "plm_ssh_agent", f"ssh -F {start.ssh_config}"]
    device = [option, "oob_tcp_if_include" if old else "prte_if_include", start.netdev]
    prefix = ["--prefix", start.prefix] if start.prefix else []
    # Each daemon binds its first rank to core 0. On one host they share it: 8 bytes take 4.6 ms instead of 10 us.
    unbound = ["--bind-to", "none"] if start.shared else []
    return [
        *(ssh if start.ssh_config else ()),
        *(device if start.ssh_config and start.netdev else ()),
        *prefix,
        *unbound,
    ]


def _hydra(start: LaunchRequest, groups: Sequence[Group]) -> list[str]:
    hosts = ["-hosts", _slots(start.contexts)] if _hosted(start.contexts) else []
    # `-prepend-rank` prints `[3] `, which a program may print as well.
    hosts += ["-prepend-pattern", "[1,%r]<stdout>:"] if start.labelled else []
    hosts += ["-iface", start.netdev] if start.ssh_config and start.netdev else []
    return hosts + _contexts(groups, hosted=False)


def _contexts(groups: Sequence[Group], hosted: bool) -> list[str]:
    tokens: list[str] = []
    for group in groups:
        first = group[0]
        tokens += [":"] * bool(tokens)
        tokens += ["-np", str(_ranks(group)), *(("-H", _slots(group)) if hosted else ())]
        tokens += (*first.variable_tokens(), *first.argv)
    return tokens


def _hosted(contexts: Sequence[RankContext]) -> bool:
    return any(context.host != LOCAL for context in contexts)


def _ranks(contexts: Sequence[RankContext]) -> int:
    return sum(context.ranks for context in contexts)


def _slots(contexts: Sequence[RankContext]) -> str:
    """Format hosts in the order of their ranks: `a:2,b:1`."""
    hosts = itertools.groupby(contexts, key=lambda context: context.host)
    return ",".join(f"{host}:{_ranks(tuple(group))}" for host, group in hosts)
