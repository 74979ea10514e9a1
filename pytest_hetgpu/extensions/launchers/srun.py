"""srun: ranks as a step of the allocation that holds the nodes, started by Slurm, connected by its PMI plugin.

| | srun's option |
|---|---|
| Open MPI, PyTorch | `--mpi=pmix` |
| MPICH | `--mpi=pmi2`, which every Slurm has |
| nodes of several kinds | a component each, `--het-group=0 ... : --het-group=1 ...` |
| CPUs of each rank | `--cpu-bind=mask_cpu:0xfe000000000000,...` |
| image by Apptainer or Singularity | `apptainer exec --bind ... IMAGE` before the program |
| rank before each line | `--label` |
| image by pyxis | `--container-image=IMAGE --container-mounts=...` |

`env K=V` or a file's reader after all that sets the variables: `--export` splits at commas, and a container may replace
them. With Slurm
22.05, steps over several components with `--mpi=pmix` sometimes print their results and hang. mpirun, which uses ssh,
does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.launchers.base import Launcher, LaunchRequest
from pytest_hetgpu.extensions.runtimes.batch.request import Batch, mask
from pytest_hetgpu.model.job import Command, RankContext, Stack

MPICH = "MPICH"
_GPU_FLAGS = {"cuda": "--nv", "rocm": "--rocm"}


class Srun(Launcher):
    """The srun of the allocation that runtime slurm holds. Each node has a slurmstepd per step."""

    needs_ssh = False
    processes = frozenset(("srun", "slurmstepd"))

    def unsuitable(self, stack: Stack, mca: Iterable[str], backend: str = "") -> str | None:
        names = ", ".join(sorted(mca))
        takes_none = names and stack.vendor == MPICH
        return f"of {stack.vendor} takes no MCA parameters; this cell sets {names}" if takes_none else None

    def labels(self, stack: Stack) -> str:
        return "srun"

    def command(self, start: LaunchRequest) -> Command:
        """Return the command. Raises NotHere for nodes outside an allocation, or that one component cannot start."""
        tokens = ["srun"]
        components = [tuple(found) for _, found in itertools.groupby(start.contexts, key=_group)]
        for component in components:
            tokens += [":"] * (len(tokens) > 1)
            tokens += _component(start, component)
        return Command(tuple(tokens))


def _batch(context: RankContext) -> Batch | None:
    return context.settings if isinstance(context.settings, Batch) else None


def _group(context: RankContext) -> int | None:
    batch = _batch(context)
    return batch.group if batch else None


def _component(start: LaunchRequest, contexts: Sequence[RankContext]) -> Iterator[str]:
    first = contexts[0]
    batch = _batch(first)
    if batch is None:
        raise NotHere("srun starts ranks on nodes of runtime slurm alone; on these, launcher mpirun does")
    for other in contexts[1:]:
        if (other.argv, other.env, other.ranks) != (first.argv, first.env, first.ranks):
            raise NotHere(
                f"srun starts alike nodes alike, and {first.host} and {other.host} differ in {_differ(first, other)}: "
                "give them hardware of two names, which is a component each"
            )
    ranks = sum(context.ranks for context in contexts)
    yield f"--mpi={batch.mpi or ('pmi2' if start.stack.vendor == MPICH else 'pmix')}"
    yield from ("--kill-on-bad-exit=1", "--input=none", *(("--label",) if start.labelled else ()))
    yield from () if batch.group is None else (f"--het-group={batch.group}",)
    yield from (f"--nodes={len(contexts)}", f"--ntasks={ranks}", f"--ntasks-per-node={first.ranks}")
    yield from _bound(batch, first.ranks)
    yield from (f"--gpus-per-node={batch.gpus}",) if batch.gpus else ()
    yield from _contained(batch, start.programs)
    yield from (*first.variable_tokens(start.mca), *first.argv)


def _differ(one: RankContext, other: RankContext) -> str:
    names = sorted(name for name in {*one.env, *other.env} if one.env.get(name) != other.env.get(name))
    return ", ".join(names) or ("their ranks" if one.ranks != other.ranks else "their command")


def _bound(batch: Batch, ranks: int) -> Iterator[str]:
    if batch.cpus_per_rank:
        yield f"--cpus-per-task={batch.cpus_per_rank}"
    if batch.bind:
        yield f"--cpu-bind={batch.bind}"
    elif batch.binding:
        if ranks > len(batch.binding):
            raise NotHere(f"cpu_bind names the CPUs of {len(batch.binding)} ranks a node, this cell has {ranks}")
        yield f"--cpu-bind=mask_cpu:{','.join(map(mask, batch.binding[:ranks]))}"


def _contained(batch: Batch, programs: str) -> Iterator[str]:
    """Yield the tokens that run the program in the image of the hardware, with its folder mounted."""
    if not batch.image:
        return
    folder = programs.rpartition("/")[0] or programs
    if batch.container == "pyxis":
        mounts = (bind if ":" in bind else f"{bind}:{bind}" for bind in (*batch.binds, folder))
        yield from (f"--container-image={batch.image}", f"--container-mounts={','.join(mounts)}")
    else:
        flag = _GPU_FLAGS.get(batch.platform)
        yield from (batch.container, "exec", *((flag,) if flag else ()), "--bind", ",".join((*batch.binds, folder)))
        yield batch.image
