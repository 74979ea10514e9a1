"""One-sided communication of Open MPI: the framework `osc`, its parameters and its log.

Windows bypass the point-to-point layer. On one host `osc/sm` takes MPI_Win_allocate by default, whatever `pml` and
`btl` are set to. Components (ompi/mca/osc):

- `pt2pt` (release 4 only) sends by the point-to-point layer. It refuses MPI_THREAD_MULTIPLE.
- `ucx` uses a worker of UCX of its own, whose lanes UCX logs as `rma(...)` or `rma_am(...)`.
- `rdma` uses byte transfer layers. It copies directly if MPI_Win_allocate is called by ranks of one host.
- `sm` copies directly. No other component of release 4 takes MPI_Win_allocate_shared.

Release 5 logs the component of each window at verbosity 10 (osc_base_init.c), and the byte transfer layers of `rdma` at
60 (osc_rdma_component.c, osc_rdma_peer.c). Release 4 logs neither, so only a list of one component is a proof there.
"""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.transports._openmpi import is_old
from pytest_hetgpu.extensions.transports.base import Rendering
from pytest_hetgpu.model.job import Stack
from pytest_hetgpu.model.transport_classes import ON_HOST, UNKNOWN, Connection, OneSided, connection

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
