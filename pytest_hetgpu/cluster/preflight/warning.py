"""A preflight warning, and a job with the facts of its nodes as rules check them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.job import Job, Node
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.rank_settings import rank_settings


@dataclass(frozen=True, slots=True)
class PreflightWarning:
    """A problem of a node that will break a cell, with its remedy.

    `kind` is the predicted outcome. If it is not `certain`, the cell may pass.
    """

    kind: Kind
    node: str
    why: str
    remedy: str
    certain: bool = True

    def __str__(self) -> str:
        return f"{self.node}: {self.why} ({'' if self.certain else 'possible '}{self.kind.value}); {self.remedy}"


@dataclass(frozen=True, slots=True)
class CheckedNode:
    """A node with its facts, and the variables of its ranks."""

    node: Node
    environment: Environment
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in a warning: `node 0 (g4ad)`."""
        return f"node {self.node.index} ({self.node.hardware.name})"

    @property
    def platform(self) -> str:
        """The platform: cpu, cuda or rocm."""
        return self.node.hardware.accelerator.platform

    def setting(self, name: str) -> str | None:
        """Return a variable as the job sets it, else as the node has it."""
        return self.settings.get(name, self.environment.text(f"env.{name}"))

    def words(self, name: str) -> tuple[str, ...]:
        """Return the parts of a variable that is a comma-separated list."""
        return tuple(filter(None, (self.setting(name) or "").split(",")))


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job and its nodes, the ones with ranks first."""

    job: Job
    members: tuple[CheckedNode, ...]

    @classmethod
    def of(cls, job: Job, environments: Mapping[int, Environment]) -> CheckedJob:
        """Make a job with the facts of its nodes. A node that was not inspected has no facts, and gives no warning."""
        settings = dict(rank_settings(job))
        return cls(
            job,
            tuple(
                CheckedNode(node, environments.get(node.index, Environment()), settings.get(node.index, {}))
                for node in (*job.nodes, *filter(None, (job.launcher,)))
            ),
        )

    @property
    def ranked(self) -> tuple[CheckedNode, ...]:
        """The nodes that carry ranks."""
        return tuple(member for member in self.members if member.node.ranks)

    @property
    def starter(self) -> CheckedNode:
        """The node that starts the job."""
        return self.members[-1] if self.job.launcher else self.members[0]

    @property
    def spread(self) -> bool:
        """Whether ranks are on several nodes."""
        return len(self.ranked) > 1

    def uses(self, layer: str) -> bool:
        """Return whether data may go through a layer (`ucx`, `ucc`, `ofi`, `ob1`), by the allowed components."""
        demand = self.job.demand
        return demand.transport_family == layer or any(
            fnmatchcase(part, f"{layer}/*") for one in demand.transports for part in _layers(one)
        )

    def components(self, layer: str) -> tuple[str, ...]:
        """Return the carriers below a layer: `("tcp", "rc_*")` of `ucx/tcp`, `ucx/rc_*`."""
        parts = (part for one in self.job.demand.transports for part in _layers(one))
        return tuple(dict.fromkeys(part.partition("/")[2] for part in parts if part.startswith(f"{layer}/")))

    def mca(self, name: str) -> str | None:
        """Return an MCA parameter of the command line, or of a context's environment."""
        tokens = self.job.command.argv
        at = next((place for place in range(len(tokens) - 2) if tokens[place : place + 2] == ("--mca", name)), None)
        set_by_env = (member.settings.get(f"OMPI_MCA_{name}") for member in self.members)
        return tokens[at + 2] if at is not None else next(filter(None, set_by_env), None)

    @property
    def torch(self) -> bool:
        """Whether its ranks run PyTorch."""
        return runs_torch(self.job)


def runs_torch(job: Job) -> bool:
    """Return whether a job's ranks run PyTorch, by its operation or its program's name."""
    operation = job.demand.operation.lower()
    programs = (token.rpartition("/")[2] for token in job.command.argv if token.endswith(".py"))
    return operation.startswith(("ddp", "torch")) or any(name.startswith(("ddp", "torch")) for name in programs)


def torch_backend(job: Job) -> str:
    """Return the backend of torch.distributed: the program's option (`--backend NAME`), else the transport's."""
    tokens = " ".join(job.command.argv).replace("--backend=", "--backend ").split()
    named = (tokens[place + 1] for place, token in enumerate(tokens[:-1]) if token == "--backend")  # noqa: S105
    family = job.demand.transport_family
    return next((name.rpartition(":")[2] for name in named), family if family in ("nccl", "gloo") else "mpi")


def _layers(component: str) -> Iterator[str]:
    """Yield the layers: `ucc/ucp:ucx/tcp` is UCC's layer `ucc/ucp` over `ucx/tcp`."""
    yield from component.split(":")
