"""Jobs and environments that the tests of preflight are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_hetgpu.cluster.preflight.check import check
from pytest_hetgpu.cluster.preflight.warning import PreflightWarning
from pytest_hetgpu.model.facts import Environment, Fact, absent, found, unknown
from pytest_hetgpu.model.job import Accelerator, Command, Fabric, Hardware, Job, Node, Requirements, Stack
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind

OPEN_MPI = Stack("openmpi-5", "Open MPI", "5.0.11", "/opt/mpi", "/opt/mpi/bin/mpirun", "/opt/mpi/bin/python3")
RANK = ("python3", "-m", "mpi4py", "/programs/allreduce.py")

CPU = Hardware("cpu", fabric=Fabric(netdev="eth0"))
G4AD = Hardware("g4ad", Accelerator("rocm", "gfx1011"), Fabric(netdev="ens5"))
G4DN = Hardware("g4dn", Accelerator("cuda", "sm_75"), Fabric(netdev="ens5"))
ROCE = Hardware("roce", Accelerator("cuda", "sm_80"), Fabric("roce", netdev="net1"))
LUMI = Hardware("lumi-g", Accelerator("rocm", "gfx90a", count=8), Fabric("slingshot", netdev="hsn0"))

Value = str | tuple[str, ...] | Fact | None


def environment(facts: Mapping[str, Value] | None = None, **more: Value) -> Environment:
    """Make facts by name: texts are found, None is absent, a Fact is kept."""
    every = {**(facts or {}), **more}
    return Environment(
        {
            name: value if isinstance(value, Fact) else absent("not there") if value is None else found(value)
            for name, value in every.items()
        }
    )


NOT_TOLD = unknown("nobody looked")


def job(
    *kinds: Hardware,
    family: str = "ucx",
    transports: Sequence[str] = ("ucx/tcp",),
    ranks: int = 1,
    env: Mapping[str, str] | Sequence[Mapping[str, str]] = {},
    mca: Mapping[str, str] = {},
    program: Sequence[str] = RANK,
    operation: str = "allreduce",
    launcher: Hardware | None = None,
    stack: Stack = OPEN_MPI,
) -> Job:
    """Make a job with one node of each kind, one context each; `env` for all or for each."""
    each = [env] * len(kinds) if isinstance(env, Mapping) else list(env)
    nodes = tuple(Node(index, kind, f"host{index}", ranks) for index, kind in enumerate(kinds))
    tokens = ["mpirun", *(token for name, value in mca.items() for token in ("--mca", name, value))]
    for index, variables in enumerate(each):
        tokens += [":"] * bool(index) + ["-np", str(ranks), "-H", f"host{index}:{ranks}"]
        tokens += ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []
        tokens += program
    demand = Requirements(
        len(kinds) * ranks, stack, family, tuple(transports), (MessagePoint(8, "float32"),), operation
    )
    control = Node(len(nodes), launcher, "control", 0) if launcher else None
    return Job("m", "cell", "cell", {}, nodes, Command(tuple(tokens)), 60.0, demand, control)


def concerns(what: Job, *environments: Environment) -> list[tuple[Kind, str, bool]]:
    """Return kind, node and certainty of every warning."""
    return [(one.kind, one.node, one.certain) for one in looked(what, *environments)]


def looked(what: Job, *environments: Environment) -> tuple[PreflightWarning, ...]:
    """Return every warning about a job whose nodes have these environments."""
    return check(what, dict(enumerate(environments)))
