"""Cells and jobs as plain frozen data. Results of jobs are in `outcome.py`.

Units: bytes, seconds, and 1e9 B/s for bandwidths.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.failure import Condition
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.old_spellings import Renamed
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.scenario import Exclusion, Expectation, Origin, Scaling, Scenario
from pytest_hetgpu.model.stored import STORED
from pytest_hetgpu.model.thresholds import TOLERANCE, Threshold
from pytest_hetgpu.model.transport_classes import OneSided, RequiredClass
from pytest_hetgpu.model.verdict import Kind, Verdict

__all__ = [
    "Accelerator",
    "Command",
    "Condition",
    "ConnectionInfo",
    "ContainerOptions",
    "Exclusion",
    "Expectation",
    "Fabric",
    "Hardware",
    "Image",
    "Job",
    "Kind",
    "MessagePoint",
    "Node",
    "Origin",
    "RankContext",
    "Requirements",
    "Scenario",
    "Stack",
    "Verdict",
]


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator: `platform` is cpu, cuda or rocm; `arch` is sm_75, gfx1011, ...; `memory` in bytes."""

    platform: str = "cpu"
    arch: str | None = None
    count: int = 1
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Fabric:
    """A network fabric: `kind` is tcp, roce, infiniband, slingshot or efa; `gbps` in 1e9 bit/s.

    `guessed`: the matrix names no `netdev`, and this one was chosen for TCP. It does not determine the HCA.
    """

    kind: str = "tcp"
    netdev: str | None = None
    hca: str | None = None
    gid_index: int | None = None
    gbps: float | None = None
    guessed: bool = False

    @property
    def named(self) -> str | None:
        """Return the interface that the matrix names."""
        return None if self.guessed else self.netdev


@dataclass(frozen=True, slots=True)
class Image:
    """A container image: a `reference`, or built from `folder` (an absolute path with a Dockerfile) with `args`.

    The reference of a built image ends in a digest of its build context. `network` is the network of the build.
    """

    reference: str
    folder: str = ""
    args: Mapping[str, str] = field(default_factory=dict)
    network: str = ""


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """Options of a node's container. Privileges that are not listed here are not granted.

    Attributes:
        network: `user`, `host`, or `auto`: a network per placement if all nodes are containers of one engine, else the
            host's.
        shm: shared memory in bytes.
        ulimits: limits by name, -1 for unlimited.
        gpus: value of `docker run --gpus`.
        volumes: mounts as `HOST:CONTAINER[:ro]`.

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
    """A named kind of node.

    `prefix` is the folder of its stack ("": found by PATH). `settings` are those of its runtime, an object of the
    runtime's own class. They are `Stored` in a job that was read back from a run's folder, and None for a runtime
    without any.
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
    """One MPI on a node: its launcher, its interpreter, and the version that ranks must report.

    `torch`: its interpreter has PyTorch, as far as is known before the ranks report. `foreign_mpi4py`: library of
    another MPI that its interpreter's mpi4py is linked with, "" if that fits.
    """

    name: str
    vendor: str
    version: str
    prefix: str
    launcher: str
    interpreter: str
    torch: bool = False
    foreign_mpi4py: str = ""

    @property
    def major(self) -> int:
        """Return the version's first number, 0 if the version is not known."""
        first = self.version.partition(".")[0]
        return int(first) if first.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """The connection to a node's host: a container `engine` (`""`: this machine's, `ssh://user@host`), or ssh.

    `user`, `port` and `key` (a private key's file) are for ssh; None leaves them to the user's ssh configuration.
    """

    engine: str = ""
    user: str | None = None
    port: int | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One member of a job: a kind of hardware bound to a host, with its ranks.

    Attributes:
        host: host to lease.
        name: name for the launcher.
        stack: MPI that its ranks load.
        container: options of a container, with the network decided: `user` or `host`.
        interface: network interface of its TCP.

    """

    index: int
    hardware: Hardware
    host: str
    ranks: int
    name: str = ""
    stack: Stack | None = None
    reach: ConnectionInfo = ConnectionInfo()
    image: Image | None = None
    container: ContainerOptions | None = None
    interface: InterfaceChoice | None = None


@dataclass(frozen=True, slots=True)
class RankContext:
    """Consecutive ranks that share program, environment and host: one context of an MPMD command line.

    `settings` are those of their node's hardware. `reader` are the tokens that start a program with the variables of a
    file; its path follows. `file` is that path in a command that is started, "" in one that users read.
    """

    ranks: int
    host: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    settings: object = None
    reader: tuple[str, ...] = ()
    file: str = ""

    def variable_tokens(self, mca: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the tokens before `argv` that set the variables, and these MCA parameters as variables.

        `env NAME=VALUE ...` is for users. Every user of a machine can read the command lines of its processes, so a
        command that is started names a file instead.
        """
        shown = {f"OMPI_MCA_{name}": value for name, value in (mca or {}).items()}
        shown = shown if self.file else {**shown, **self.env}
        words = ("env", *(f"{name}={value}" for name, value in sorted(shown.items()))) if shown else ()
        return (*words, *self.reader, self.file) if self.file else words


@dataclass(frozen=True, slots=True)
class Command:
    """One process to start: tokens, never a shell line. `env` is set on top of the runtime's own.

    `argv` is for users: it shows the variables of ranks. A runtime starts `started`, which names a file for each of the
    `variables`. Neither is stored.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    #: The tokens without the values of variables; () for a command without variables.
    private_argv: tuple[str, ...] = field(default=(), compare=False, metadata={"key": ""})
    #: The variables of contexts, by the name of their file.
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False, metadata={"key": ""})

    @property
    def started(self) -> tuple[str, ...]:
        """Return the tokens that a runtime starts."""
        return self.private_argv or self.argv

    def files(self) -> dict[str, bytes]:
        """Return the content of the files with variables, by name. Each is readable by this user only."""
        return {name: json.dumps(dict(env)).encode("ascii") for name, env in self.variables.items()}


ON_DEVICE = ("device", "managed")
"""Values of `memory` for an accelerator's memory."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """The results that a run must show to pass, judged from its output alone.

    Attributes:
        transports: components that may carry data between ranks, as the parser of `transport_family` reports them.
        duties: classes that must carry the data, by path.
        points: points that must be checked, and measured by rank 0 if `measured`.
        rdma: all nodes are on fabrics that bypass the kernel.
        backend: backend of torch.distributed, "" for ranks that call MPI.
        foreign: program of another project, None for ours.
        limits: thresholds for times, by point.
        trace: rank 0 reports a trace of a profiler.
        before: facts of the run that most thresholds come from.
        tolerance: accepted deterioration as a share: 0.1 is 10 %.
        one_sided: requirements for MPI windows, None if the program uses none.
        strict: warnings of libraries about versions decide the verdict, as those of preflight do.

    """

    ranks: int
    stack: Stack
    transport_family: str
    transports: tuple[str, ...]
    points: tuple[MessagePoint, ...]
    operation: str
    measured: bool = True
    trace: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()
    expectations: tuple[Expectation, ...] = ()
    rdma: bool = False
    backend: str = ""
    external: ExternalProgram | None = field(default=None, metadata={"key": "foreign"})
    tolerance: float = TOLERANCE
    limits: Mapping[MessagePoint, tuple[Threshold, ...]] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    duties: Mapping[str, RequiredClass] = field(default_factory=dict)
    one_sided: OneSided | None = None
    strict: bool = False

    @property
    def row_ranks(self) -> int:
        """Return the number of ranks of its rows: 2 for a ping-pong in any world, GPUs if a process has several."""
        return self.ranks if self.external is None else self.external.ranks or 0

    def requires(self, point: MessagePoint) -> bool:
        """Return whether a point must be measured. A requirement without a dtype accepts any."""
        return point in self.points or replace(point, dtype="") in self.points


@dataclass(frozen=True, slots=True)
class Job:
    """The processes to start for a scenario. Pure data: the same matrix and machine give the same job.

    `launcher` is a node without ranks that starts the job; None: the first node starts it. `scaling` is set for a cell
    of a series over the number of ranks. `needs_ssh`: the launch node must reach the other nodes by ssh.
    """

    matrix: str
    scenario: str
    label: str
    axes: Mapping[str, str]
    nodes: tuple[Node, ...]
    command: Command
    timeout: float
    demand: Requirements
    launcher: Node | None = None
    scaling: Scaling | None = None
    needs_ssh: bool = True

    everybody = Renamed("all_nodes")
    starter = Renamed("launch_node")
    joined = Renamed("is_multi_host")

    @property
    def all_nodes(self) -> tuple[Node, ...]:
        """Return the nodes with ranks, then the launcher without."""
        return (*self.nodes, self.launcher) if self.launcher else self.nodes

    @property
    def launch_node(self) -> Node:
        """Return the node that runs the launch command."""
        return self.launcher or self.nodes[0]

    @property
    def is_multi_host(self) -> bool:
        """Return whether nodes must be provisioned and connected first, as all but processes of this machine."""
        return any(node.hardware.runtime != "local" for node in self.all_nodes)
