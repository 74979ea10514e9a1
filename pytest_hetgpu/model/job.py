"""Cells and jobs as plain frozen data. Results of jobs are in `outcome.py`.

Units everywhere: bytes, seconds, and 1e9 B/s for bandwidths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.failure import Condition
from pytest_hetgpu.model.interfaces import Choice
from pytest_hetgpu.model.records import Point
from pytest_hetgpu.model.stored import STORED
from pytest_hetgpu.model.thresholds import TOLERANCE, Limit, Reference
from pytest_hetgpu.model.transport_classes import Duty
from pytest_hetgpu.model.verdict import Kind, Verdict

__all__ = [
    "Accelerator",
    "Command",
    "Condition",
    "ContainerOptions",
    "Demand",
    "Exclusion",
    "Expectation",
    "Fabric",
    "Hardware",
    "Image",
    "Job",
    "Kind",
    "Node",
    "Origin",
    "Point",
    "RankContext",
    "Reach",
    "Scenario",
    "Stack",
    "Verdict",
]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in the user's files something was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What computes: `platform` is cpu, cuda or rocm; `arch` is sm_75, gfx1011, ...; `memory` in bytes."""

    platform: str = "cpu"
    arch: str | None = None
    count: int = 1
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Fabric:
    """What connects: `kind` is tcp, roce, infiniband, slingshot or efa; `gbps` in 1e9 bit/s.

    `guessed`: the matrix names no `netdev`, and this one was chosen for TCP. It tells nothing of the HCA.
    """

    kind: str = "tcp"
    netdev: str | None = None
    hca: str | None = None
    gid_index: int | None = None
    gbps: float | None = None
    guessed: bool = False

    @property
    def named(self) -> str | None:
        """The interface that the matrix names."""
        return None if self.guessed else self.netdev


@dataclass(frozen=True, slots=True)
class Image:
    """A container image: a `reference`, or built from `folder` (an absolute path with a Dockerfile) with `args`.

    A built image's reference ends in a digest of what it is built from. `network` is the one its build uses.
    """

    reference: str
    folder: str = ""
    args: Mapping[str, str] = field(default_factory=dict)
    network: str = ""


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """What a node's container gets beyond an ordinary one; nothing is privileged that is not listed here.

    `network`: `auto` (a network of the placement's own where all its nodes are containers of one engine, else the
    host's), `user` or `host`. `shm` in bytes, `ulimits` by name, -1 for unlimited. `gpus` as `docker run --gpus` takes
    it. `volumes` are `HOST:CONTAINER[:ro]`.
    """

    network: str = "auto"
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    cap_add: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    ipc: str = ""
    shm: int | None = None
    ulimits: Mapping[str, int] = field(default_factory=dict)
    gpus: str = ""
    user: str = ""
    volumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hardware:
    """A named kind of node. `prefix` is where its stack is ("": PATH finds it).

    `settings` are those of its runtime: an object of the runtime's own class, `Stored` in a job that was read back from
    a run's folder, None for a runtime without any.
    """

    name: str
    accelerator: Accelerator = Accelerator()
    fabric: Fabric = Fabric()
    runtime: str = "local"
    stack: str = "openmpi-5"
    prefix: str = ""
    image: str | None = None
    build_args: Mapping[str, str] = field(default_factory=dict)
    build_network: str = ""
    container: ContainerOptions = ContainerOptions()
    env: Mapping[str, str] = field(default_factory=dict)
    mca: Mapping[str, str] = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()
    settings: object = field(default=None, metadata={STORED: ("batch", "pods", "settings")})


@dataclass(frozen=True, slots=True)
class Stack:
    """One MPI as found on a node: its launcher, its interpreter, and what its ranks must report.

    `torch`: its interpreter has PyTorch, as far as is known before it is asked.
    """

    name: str
    vendor: str
    version: str
    prefix: str
    launcher: str
    interpreter: str
    torch: bool = False

    @property
    def major(self) -> int:
        """The version's first number, 0 where the version is not known."""
        first = self.version.partition(".")[0]
        return int(first) if first.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Reach:
    """How a node's host is reached: a container `engine` (`""`: this machine's, `ssh://user@host`), or by ssh.

    `user`, `port` and `key` (a private key's file) are ssh's; None leaves them to the user's ssh configuration.
    """

    engine: str = ""
    user: str | None = None
    port: int | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One member of a job: a kind of hardware bound to a host, with the ranks it carries.

    `host` is whom a lease is for, `name` what the launcher calls it, `stack` the MPI that its ranks load. `image` and
    `container` are set for a container, its network decided: `user` or `host`. `interface` is that of its TCP.
    """

    index: int
    hardware: Hardware
    host: str
    ranks: int
    name: str = ""
    stack: Stack | None = None
    reach: Reach = Reach()
    image: Image | None = None
    container: ContainerOptions | None = None
    interface: Choice | None = None


@dataclass(frozen=True, slots=True)
class RankContext:
    """Consecutive ranks that share program, environment and host: one context of an MPMD command line.

    `settings` are those of their node's hardware.
    """

    ranks: int
    host: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    settings: object = None


@dataclass(frozen=True, slots=True)
class Command:
    """One process to start: tokens, never a shell line. `env` is set on top of the runtime's own."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expectation:
    """A known-bad cell. Empty `signatures` accepts any; a signature may be a glob.

    `known` is the id of the entry of knowledge that must fit the failure. Where it is not `strict` the cell may pass.
    """

    kinds: tuple[Kind, ...]
    signatures: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()
    issue: str | None = None
    reason: str | None = None
    fixed_in: str | None = None
    remedy: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    origin: Origin | None = None
    known: str | None = None
    strict: bool = True


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a cell of the matrix is not to be run."""

    reason: str
    issue: str | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cell: one value of each axis. `label` is `id`, with the matrix's name before it where a run has several."""

    matrix: str
    id: str
    label: str
    axes: tuple[str, ...]
    values: tuple[str, ...]
    expectations: tuple[Expectation, ...] = ()
    excluded: Exclusion | None = None
    references: tuple[Reference, ...] = ()

    def value(self, axis: str) -> str:
        """The name of this cell's value on an axis, e.g. `value("transport")`; KeyError for an unknown axis."""
        try:
            return self.values[self.axes.index(axis)]
        except ValueError:
            raise KeyError(axis) from None


ON_DEVICE = ("device", "managed")
"""Values of `memory` that are an accelerator's."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run must show before it may be called passed; judged from its output alone.

    `transports` are the component names that may carry data between ranks, as `transport_family`'s reader reports them;
    `duties` are the classes that must, by path. `points` must be measured (by rank 0, when `measured`) and checked.
    `rdma`: all nodes are on fabrics whose data passes the kernel by. `backend` is that of torch.distributed, "" for
    ranks that call MPI themselves. `foreign` is the program, where it is not ours. `limits` are what times are held
    against, `before` the facts of the run that most of them come from; a number may be worse by `tolerance`, a share.
    """

    ranks: int
    stack: Stack
    transport_family: str
    transports: tuple[str, ...]
    points: tuple[Point, ...]
    operation: str
    measured: bool = True
    facts: Mapping[str, str] = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()
    expectations: tuple[Expectation, ...] = ()
    rdma: bool = False
    backend: str = ""
    external: ExternalProgram | None = field(default=None, metadata={"key": "foreign"})
    tolerance: float = TOLERANCE
    limits: Mapping[Point, tuple[Limit, ...]] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    duties: Mapping[str, Duty] = field(default_factory=dict)

    @property
    def counted(self) -> int:
        """The ranks that its rows are of: a ping-pong's two in any world, GPUs where a process has several."""
        return self.ranks if self.external is None else self.external.ranks or 0

    def owes(self, point: Point) -> bool:
        """Whether a point is one that must be measured; one that is owed in no certain type may be of any."""
        return point in self.points or replace(point, dtype="") in self.points


@dataclass(frozen=True, slots=True)
class Job:
    """What will be started for a scenario. Pure data: the same matrix and machine give the same job.

    `launcher` is a node without ranks that starts the job; None: the first node does.
    """

    matrix: str
    scenario: str
    label: str
    axes: Mapping[str, str]
    nodes: tuple[Node, ...]
    command: Command
    timeout: float
    demand: Demand
    launcher: Node | None = None

    @property
    def everybody(self) -> tuple[Node, ...]:
        """The nodes with ranks, then the launcher without."""
        return (*self.nodes, self.launcher) if self.launcher else self.nodes

    @property
    def starter(self) -> Node:
        """The node that the command is started on."""
        return self.launcher or self.nodes[0]

    @property
    def joined(self) -> bool:
        """Whether its nodes must be made and joined first: any of them is more than processes of this machine."""
        return any(node.hardware.runtime != "local" for node in self.everybody)
