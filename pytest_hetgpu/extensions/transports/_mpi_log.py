"""The parser of transports in the log of any MPI: a run may use a transport that was not requested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pytest_hetgpu.extensions.transports._mpich import SHARED_MEMORY, MpichSummary
from pytest_hetgpu.extensions.transports._openmpi import ConnectionTable, LayerLog, WindowLog
from pytest_hetgpu.extensions.transports._ucx_log import UcxLog
from pytest_hetgpu.model.transport_classes import ON_HOST, UNKNOWN, Connection, connection


class MpiTransportParser:
    """The components between ranks: `ob1/tcp`, `ob1/sm` (vader of Open MPI 4), `ucx/posix`, `ofi/tcp`, `ch4/posix`.

    The table of Open MPI 5 is complete except for the provider of OFI. Without a table, the lanes that UCX logs count
    if UCX is the selected layer, and so do those of ob1 and OFI. MPICH logs lanes of UCX even if all ranks share
    memory.
    """

    triggers = (
        *ConnectionTable.triggers,
        *LayerLog.triggers,
        *UcxLog.triggers,
        *MpichSummary.triggers,
        *WindowLog.triggers,
    )

    def __init__(self) -> None:
        self._table, self._layers, self._ucx, self._mpich = ConnectionTable(), LayerLog(), UcxLog(), MpichSummary()
        self._windows = WindowLog()

    def feed(self, line: str, number: int) -> None:
        """Read a line of any of them; other lines are ignored."""
        for part in (self._table, self._layers, self._ucx, self._mpich, self._windows):
            part.feed(line)

    @property
    def transports(self) -> tuple[str, ...]:
        """Return the components that carried data between ranks, sorted."""
        return tuple(sorted({name for one in self.connections for name in one.components}))

    @property
    def connections(self) -> frozenset[Connection]:
        """Return the same by path and by kind of connection."""
        found = self._of_table() if self._table.connections else self._of_logs()
        return frozenset(map(self._ucx.with_uncertainty, found))

    @property
    def windows(self) -> frozenset[Connection]:
        """Return the components of MPI windows.

        MPICH logs no windows. Between ranks that share memory it uses that memory or the network module, by the kind of
        the window.
        """
        if not self._mpich.present:
            return frozenset(self._windows.connections | self._ucx.windows)
        if not self._mpich.shared:
            return frozenset(self._netmod(self._ucx.windows))
        lanes = [one._replace(unsure=one.components) for one in self._netmod(self._ucx.windows)]
        return frozenset((connection(ON_HOST, (SHARED_MEMORY,)), *lanes))

    @property
    def versions(self) -> Mapping[str, str]:
        """Return the version of UCX if it logged one."""
        return {"ucx": self._ucx.version} if self._ucx.version else {}

    def _of_table(self) -> Iterator[Connection]:
        providers = {f"ofi/{name}" for name in self._layers.providers} or {"ofi"}
        for one in self._table.connections:
            yield connection(one.path, providers) if one.components == ("ofi",) else one

    def _of_logs(self) -> set[Connection]:
        lanes = self._ucx.connections
        if self._mpich.present:
            netmod = self._netmod(lanes)
            shared = {connection(ON_HOST, (SHARED_MEMORY,))} if self._mpich.shared else set()
            return shared | (netmod if self._mpich.networked else set())
        layers = {
            "ob1": self._layers.btl,
            "ucx": lanes,
            "cm": _single(f"ofi/{name}" for name in self._layers.providers),
        }
        # If the log does not show the selected layer, OFI's provider is only a candidate.
        selected = self._layers.pml or {"ob1", "ucx"}
        return set().union(*(layers.get(name, _single((name,))) for name in selected))

    def _netmod(self, lanes: set[Connection]) -> set[Connection]:
        """Return the connections of the network module of MPICH; `lanes` are those of UCX."""
        return lanes if self._mpich.ucx else _single(f"ofi/{name}" for name in self._mpich.providers)


def _single(components: Iterable[str]) -> set[Connection]:
    """Return the connection of a component that a log names once per process."""
    return {connection(UNKNOWN, (name,)) for name in components}
