"""Open MPI: the parameters that pin a transport and log it, and the parsers of that log.

From release 5 on, `ompi_display_comm mpi_init` prints a table at the end of MPI_Init
(ompi/mca/hook/comm_method/hook_comm_method_fns.c). Release 4 has no such table. At low verbosity each of its layers
logs its choice:

- the point-to-point layer: `selected ob1 best priority 20` (ompi/mca/pml/base)
- its byte transfer layer to each rank: `mca: bml: Using vader btl for send to ...` (ompi/mca/bml/r2)
- OFI's provider: `mtl:ofi:prov: tcp` (ompi/mca/mtl/ofi)

One-sided communication (MPI windows) bypasses that layer by the framework `osc`. On one host `osc/sm` serves
MPI_Win_allocate by default, whatever `pml` and `btl` are set to. Its components (ompi/mca/osc):

- `pt2pt` (release 4 only) sends by the point-to-point layer. It refuses MPI_THREAD_MULTIPLE.
- `ucx` uses a UCX worker of its own, whose lanes UCX logs as `rma(...)` or `rma_am(...)`.
- `rdma` uses byte transfer layers. It copies directly if ranks of one host call MPI_Win_allocate.
- `sm` copies directly. No other component of release 4 serves MPI_Win_allocate_shared.

Release 5 logs the component of each window at verbosity 10 (osc_base_init.c), and the byte transfer layers of `rdma` at
60 (osc_rdma_component.c, osc_rdma_peer.c). Release 4 logs neither, so only a list of one component is a proof there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.extensions.transports._ucx_log import INFO
from pytest_hetgpu.extensions.transports.base import Rendering
from pytest_hetgpu.model.job import Stack
from pytest_hetgpu.model.transport_classes import OFF_HOST, ON_HOST, UNKNOWN, Connection, OneSided, connection

VENDOR = "Open MPI"
_SHOW_5 = {"ompi_display_comm": "mpi_init"}
_SHOW_4 = {"pml_base_verbose": "10", "btl_base_verbose": "1", "opal_common_ofi_verbose": "1"}
# Collectives that bypass the point-to-point layer: hcoll and fca are in use as soon as they are installed, the others
# if a parameter raises their priority. Open MPI ignores names that its build lacks.
_OWN_PATHS = {"coll": "^acoll,fca,hcoll,sm,smdirect,xhc"}
# sm of release 5 was vader before. sm of release 4 is a stub that only prints this.
_SM_4, _SM_5 = "vader", "sm"

_SUMMARY = re.compile(r"^\s*(on-host|off-host):\s+(all|most) connections are (.+?)\s*$")
# Below "Exceptions:", the connections of each host that differs from most: `  host 1: [2x tcp] [1x ucx=posix;memory]`.
_EXCEPTION = re.compile(r"^\s*host \d+:((?: \[\d+x [^\]]+\])+)\s*$")
_EXCEPTED = re.compile(r"\[(\d+)x ([^\]]+)\]")
_PML = re.compile(r"\] selected (\w+) best priority \d")
_BTL = re.compile(r"(?:\[([^\[\]:]+):\d+\] )?\bmca: bml: Using (\w+) btl for send to (?:\S+ on node (\S+))?")
# Release 4 has the provider after `prov:` and its domain after `provider:`, release 5 the provider after `provider:`.
_PROVIDER = re.compile(r"\bmtl:ofi:(prov|provider): ([\w+-]+)")

PINNED_4 = "osc"
"""Parameter of release 4 that excludes all other components."""
SHARED = "osc/sm"
COPIED = "osc/rdma:memory"
"""Component of a window of `rdma` in memory that the ranks of a host share."""
IN_MEMORY = (SHARED, COPIED)
# MPI_Win_allocate_shared still gets sm, as it gets no other component than ucx.
_LAST_RESORT = {"osc_sm_priority": "1"}
SHOW_5 = {"osc_base_verbose": "60"}
_ALLOCATED = "2"  # MPI_WIN_FLAVOR_ALLOCATE of mpi.h

_PROCESS = re.compile(r"\[[^\[\]:]+:\d+\]")
# ucx is known by its lanes, and the point-to-point layers have components of that name.
_SELECTED = re.compile(r"\] select: component (sm|pt2pt) selected")
_FLAVOR = re.compile(r"\] creating osc/rdma window of flavor (\d)")
_SHARED_STATE = "allocating shared internal state"
_PEER = re.compile(r"\] rank (\d+) found btl for peer (\d+) \((\w+),")
_ACCELERATED = re.compile(r"\] accelerated_query: selected btl: (\w+)")


def pinned(stack: Stack, mca: dict[str, str], env: dict[str, str] | None = None) -> Rendering:
    """Return the parameters, with those that make the release log its transports.

    A pinned point-to-point layer (`pml`) carries the collectives, too.
    """
    collectives = _OWN_PATHS if "pml" in mca else {}
    if is_old(stack):
        return Rendering(collectives | mca | _SHOW_4, INFO | (env or {}))
    return Rendering(collectives | mca | _SHOW_5, env or {})


def verbose(frameworks: Sequence[str], env: dict[str, str] | None = None) -> Rendering:
    """Return the verbosity of these frameworks that bug reports to Open MPI require."""
    return Rendering({f"{framework}_base_verbose": "100" for framework in ("pml", *frameworks)}, env or {})


def ob1(stack: Stack, btl: Sequence[str], interface: str) -> Rendering:
    """Return PML ob1 with just these byte transfer layers, tcp on one interface ("": none is known).

    By default the TCP layer tries every interface, and hangs if one of them (a docker bridge) leads nowhere.
    """
    shared = _SM_4 if is_old(stack) else _SM_5
    mca = {"pml": "ob1", "btl": ",".join(shared if plain(name) == _SM_5 else name for name in btl)}
    if "tcp" in btl and interface:
        mca["btl_tcp_if_include"] = interface
    return pinned(stack, mca)


def one_sided(
    stack: Stack, benchmark: bool, old: str, components: tuple[str, ...], *, shared: bool = False
) -> tuple[Rendering, OneSided]:
    """Return the settings of windows and their requirements.

    `old` is the list of components for release 4. It is set for benchmarks only: programs that share memory or use
    MPI_THREAD_MULTIPLE would fail. `shared`: shared memory is what the transport asks for.
    """
    if is_old(stack):
        return Rendering({PINNED_4: old} if benchmark else {}), OneSided(components, benchmark, pinned=True)
    return Rendering(SHOW_5 if shared else {**_LAST_RESORT, **SHOW_5}), OneSided(components, benchmark, logged=True)


def plain(btl: str) -> str:
    """Return the name of a byte transfer layer in release 5."""
    return _SM_5 if btl == _SM_4 else btl


def is_old(stack: Stack) -> bool:
    """Return whether this is release 4 or older; an unknown version counts as new."""
    return 0 < stack.major < 5


def components(text: str) -> set[str]:
    """Return the components in one entry of the table: `tcp` is from ob1, `ucx=posix;memory,tcp;eth0` are two from UCX.

    A rank's connection to itself does not count.
    """
    method = text.removesuffix(" or self")
    pml, equals, lanes = method.partition("=")
    if equals:
        names = {lane.partition(";")[0] for lane in lanes.split(",")}
        return set() if "self" in names else {f"{pml}/{name}" for name in names}
    if method in ("n/a", "self"):
        return set()
    return {method if method in ("ucx", "ofi") else f"ob1/{method}"}


class ConnectionTable:
    """Open MPI 5's connection summary with its exceptions.

    A row of the exceptions counts all connections of a host: one to itself, and one to each other host.
    """

    triggers = (b"-host:", b"  host ")

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self._uniform: dict[str, str] = {}

    def feed(self, line: str) -> None:
        """Read a line of the summary or of its exceptions."""
        summary = _SUMMARY.match(line)
        if summary:
            path, uniformity, method = summary.groups()
            self._uniform.pop(path, None)
            if uniformity == "all":
                self._uniform[path] = method.removesuffix(" or self")
            self._add(path, method)
            return
        exception = _EXCEPTION.match(line)
        if exception:
            self._except({method: int(count) for count, method in _EXCEPTED.findall(exception[1])})

    def _add(self, path: str, method: str) -> None:
        names = components(method)
        if names:
            self.connections.add(connection(path, names))

    def _except(self, counts: dict[str, int]) -> None:
        hosts = sum(counts.values())
        within, without = self._uniform.get(ON_HOST), self._uniform.get(OFF_HOST)
        if len(counts) == 1:
            for path in (ON_HOST, OFF_HOST) if hosts > 1 else (ON_HOST,):
                self._add(path, *counts)
            return
        path = UNKNOWN
        if without is not None and counts.get(without, 0) >= hosts - 1:
            path, counts[without] = ON_HOST, counts[without] - (hosts - 1)
        elif within is not None and within in counts:
            path, counts[within] = OFF_HOST, counts[within] - 1
        for method in (method for method, count in counts.items() if count > 0):
            self._add(path, method)


class LayerLog:
    """The choices that the layers of Open MPI 4 log, and OFI's provider of every release."""

    triggers = (b" best priority ", b"mca: bml: Using ", b"mtl:ofi:prov")

    def __init__(self) -> None:
        self.pml: set[str] = set()
        self._btl: dict[tuple[str, str], set[str]] = {}
        self._providers: dict[str, set[str]] = {"prov": set(), "provider": set()}

    def feed(self, line: str) -> None:
        """Read a line of one of the layers."""
        pml, btl, provider = _PML.search(line), _BTL.search(line), _PROVIDER.search(line)
        if pml:
            self.pml.add(pml[1])
        if btl and btl[2] != "self":
            sender, peer = ((name or "").partition(".")[0] for name in (btl[1], btl[3]))
            path = UNKNOWN if "" in (sender, peer) else ON_HOST if sender == peer else OFF_HOST
            self._btl.setdefault((sender, path), set()).add(f"ob1/{plain(btl[2])}")
        if provider:
            self._providers[provider[1]].add(provider[2])

    @property
    def btl(self) -> set[Connection]:
        """Return byte transfer layers by path, those of one host's ranks together."""
        return {connection(path, names) for (_, path), names in self._btl.items()}

    @property
    def providers(self) -> set[str]:
        """Return the names of libfabric's providers in use."""
        return self._providers["prov"] or self._providers["provider"]


class WindowLog:
    """The components of windows in the log of Open MPI 5, fed with every line that contains one of `triggers`."""

    triggers = (
        b"select: component ",
        b"osc/rdma window of flavor ",
        b"shared internal state",
        b" found btl for peer ",
        b"accelerated_query: selected btl",
    )

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self._flavors: dict[str, str] = {}

    def feed(self, line: str) -> None:
        """Read a line. A rank's window to itself does not count."""
        if (selected := _SELECTED.search(line)) and selected[1] == "sm":
            self.connections.add(connection(ON_HOST, (SHARED,)))
        process = _PROCESS.search(line)
        if process and (flavor := _FLAVOR.search(line)):
            self._flavors[process[0]] = flavor[1]
        if process and _SHARED_STATE in line and self._flavors.get(process[0]) == _ALLOCATED:
            self.connections.add(connection(ON_HOST, (COPIED,)))
        peer, accelerated = _PEER.search(line), _ACCELERATED.search(line)
        if peer and peer[1] != peer[2]:
            self.connections.add(connection(UNKNOWN, (f"osc/rdma:{peer[3]}",)))
        if accelerated:
            self.connections.add(connection(UNKNOWN, (f"osc/rdma:{accelerated[1]}",)))
