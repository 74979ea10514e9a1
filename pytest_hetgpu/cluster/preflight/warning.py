"""The words of preflight: a concern, and a cell's members as its rules look at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.job import Job, Node
from pytest_hetgpu.model.verdict import Kind


@dataclass(frozen=True, slots=True)
class PreflightWarning:
    """What will break a cell on a node, and what would remedy it.

    `kind` is the outcome to be feared. `certain` is False where a cell may well pass: then it is a warning only.
    """

    kind: Kind
    node: str
    why: str
    remedy: str
    certain: bool = True

    def __str__(self) -> str:
        return f"{self.node}: {self.why} ({self.kind.value}{'' if self.certain else ' feared'}); {self.remedy}"


@dataclass(frozen=True, slots=True)
class CheckedNode:
    """A node with what is known of it, and the variables that its ranks will have."""

    node: Node
    environment: Environment
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How a concern calls it: `node 0 (g4ad)`."""
        return f"node {self.node.index} ({self.node.hardware.name})"

    @property
    def platform(self) -> str:
        """cpu, cuda or rocm."""
        return self.node.hardware.accelerator.platform

    def setting(self, name: str) -> str | None:
        """A variable as the job sets it, else as the node has it."""
        return self.settings.get(name, self.environment.text(f"env.{name}"))

    def words(self, name: str) -> tuple[str, ...]:
        """The parts of a variable that is a list with commas."""
        return tuple(filter(None, (self.setting(name) or "").split(",")))


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job and its members, the ones with ranks first."""

    job: Job
    members: tuple[CheckedNode, ...]

    @classmethod
    def of(cls, job: Job, environments: Mapping[int, Environment]) -> CheckedJob:
        """A cell whose nodes were looked at; one that was not has no facts, and so gives no concern."""
        settings = dict(_settings(job))
        return cls(
            job,
            tuple(
                CheckedNode(node, environments.get(node.index, Environment()), settings.get(node.index, {}))
                for node in (*job.nodes, *filter(None, (job.launcher,)))
            ),
        )

    @property
    def ranked(self) -> tuple[CheckedNode, ...]:
        """The members that carry ranks."""
        return tuple(member for member in self.members if member.node.ranks)

    @property
    def spread(self) -> bool:
        """Whether ranks are on several nodes."""
        return len(self.ranked) > 1

    def uses(self, layer: str) -> bool:
        """Whether data may go through a layer (`ucx`, `ucc`, `ofi`, `ob1`), by the components that may carry it."""
        demand = self.job.demand
        return demand.transport_family == layer or any(
            fnmatchcase(part, f"{layer}/*") for one in demand.transports for part in _layers(one)
        )

    def components(self, layer: str) -> tuple[str, ...]:
        """What may carry data below a layer: `("tcp", "rc_*")` of `ucx/tcp`, `ucx/rc_*`."""
        parts = (part for one in self.job.demand.transports for part in _layers(one))
        return tuple(dict.fromkeys(part.partition("/")[2] for part in parts if part.startswith(f"{layer}/")))

    def mca(self, name: str) -> str | None:
        """An MCA parameter of the command line, or one that a context sets by its variable."""
        tokens = self.job.command.argv
        at = next((place for place in range(len(tokens) - 2) if tokens[place : place + 2] == ("--mca", name)), None)
        set_by_env = (member.settings.get(f"OMPI_MCA_{name}") for member in self.members)
        return tokens[at + 2] if at is not None else next(filter(None, set_by_env), None)

    @property
    def torch(self) -> bool:
        """Whether its ranks run PyTorch."""
        return runs_torch(self.job)


def runs_torch(job: Job) -> bool:
    """Whether a job's ranks run PyTorch: by its operation, or by a program of such a name."""
    operation = job.demand.operation.lower()
    programs = (token.rpartition("/")[2] for token in job.command.argv if token.endswith(".py"))
    return operation.startswith(("ddp", "torch")) or any(name.startswith(("ddp", "torch")) for name in programs)


def torch_backend(job: Job) -> str:
    """The backend of torch.distributed: the one its program is given (`--backend NAME`), else the transport's."""
    tokens = " ".join(job.command.argv).replace("--backend=", "--backend ").split()
    named = (tokens[place + 1] for place, token in enumerate(tokens[:-1]) if token == "--backend")  # noqa: S105
    family = job.demand.transport_family
    return next((name.rpartition(":")[2] for name in named), family if family in ("nccl", "gloo") else "mpi")


def _layers(component: str) -> Iterator[str]:
    """`ucc/ucp:ucx/tcp` is UCC's layer `ucc/ucp` over `ucx/tcp`."""
    yield from component.split(":")


def _settings(job: Job) -> Iterator[tuple[int, dict[str, str]]]:
    """The variables of each node's ranks: those of the command, of its hardware, and `env K=V` of its context."""
    contexts = list(_contexts(job.command.argv))
    ranks, place = 0, 0
    for node in job.nodes:
        while place < len(contexts) - 1 and ranks >= contexts[place][0]:
            ranks, place = ranks - contexts[place][0], place + 1
        own = contexts[place][1] if contexts else {}
        ranks += node.ranks
        yield node.index, {**job.command.env, **node.hardware.env, **own}


def _contexts(argv: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Ranks and variables of each context of an MPMD command line."""
    start = 0
    for end in (*(place for place, token in enumerate(argv) if token == ":"), len(argv)):  # noqa: S105
        yield _context(argv[start:end])
        start = end + 1


def _context(tokens: Sequence[str]) -> tuple[int, dict[str, str]]:
    counts = (tokens[place + 1] for place, token in enumerate(tokens[:-1]) if token in ("-np", "-n"))
    count = next((int(word) for word in counts if word.isdecimal()), 0)
    if "env" not in tokens:
        return count, {}
    pairs = (token.partition("=") for token in tokens[list(tokens).index("env") + 1 :])
    variables = {}
    for name, equals, value in pairs:
        if not equals or not name.replace("_", "a").isalnum():
            break
        variables[name] = value
    return count, variables
