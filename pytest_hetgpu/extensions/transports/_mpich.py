"""MPICH (device ch4): the variables that pin a transport and log it, and the parser of that log.

With MPIR_CVAR_DEBUG_SUMMARY=2 the initialised network module prints its name (src/mpid/ch4/netmod/*/*_init.c). Every
rank that shares memory with others of its host prints their distances, `Rank: 1, Local_rank: 1 [ 0, 0 ]`
(src/mpid/ch4/shm/posix/posix_init.c). A rank without such a line uses the network module for all others.
"""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.transports._ucx_log import INFO
from pytest_hetgpu.extensions.transports.base import Rendering
from pytest_hetgpu.model.job import Stack
from pytest_hetgpu.model.transport_classes import OneSided

VENDOR = "MPICH"
SHARED_MEMORY = "ch4/posix"

_LOCAL = re.compile(r"Rank: (\d+), Local_rank: (\d+) \[ ")
_PROVIDER = re.compile(r"\blibfabric provider: ([\w+-]+)")
_SIZE = re.compile(r'\{"t":"hello",.*?"size":(\d+),')


def pinned(stack: Stack, netmod: str | None, env: dict[str, str] | None = None) -> Rendering:
    """Return the settings of a network module for all traffic, without shared memory.

    For None, ranks of one host may share memory.
    """
    module = {} if netmod is None else {"MPIR_CVAR_CH4_NETMOD": netmod}
    local = {"MPIR_CVAR_NOLOCAL": "0" if netmod is None else "1"}
    return Rendering({}, {**module, **local, "MPIR_CVAR_DEBUG_SUMMARY": _summary(stack.version), **INFO, **(env or {})})


def one_sided(netmod: str, components: tuple[str, ...], benchmark: bool) -> tuple[Rendering, OneSided]:
    """Return the same settings as a proof of windows: without shared memory they have the network module alone."""
    pins = {"MPIR_CVAR_CH4_NETMOD": netmod, "MPIR_CVAR_NOLOCAL": "1"}
    return Rendering({}, pins), OneSided(components, benchmark, pinned=True)


def _summary(version: str) -> str:
    """Return the level of the summary. MPICH 4.0 to 4.2 end at any other than 0 and 1: it is a switch there."""
    return "1" if version.startswith(("4.0", "4.1", "4.2")) else "2"


def verbose(env: dict[str, str] | None = None) -> Rendering:
    """Return the settings for the whole stack of an error. The summary is always on; libraries below add their own."""
    return Rendering({}, {"MPIR_CVAR_PRINT_ERROR_STACK": "1", **(env or {})})


class MpichSummary:
    """The network module and the use of shared memory, by the summary of MPICH."""

    triggers = (b"Local_rank: ", b"libfabric provider: ", b"UCX netmod Capability", b'{"t":"hello"')

    def __init__(self) -> None:
        self.ucx = False
        self.providers: set[str] = set()
        self._local: dict[int, int] = {}
        self._size = 0

    def feed(self, line: str) -> None:
        """Read a line of the summary, or a rank's greeting for the number of ranks."""
        # Ranks print in pieces, so one line may contain the beginnings of several.
        self._local.update((int(rank), int(local)) for rank, local in _LOCAL.findall(line))
        provider, size = _PROVIDER.search(line), _SIZE.search(line)
        if provider:
            self.providers.add(provider[1])
        if size:
            self._size = max(self._size, int(size[1]))
        self.ucx = self.ucx or "UCX netmod Capability" in line

    @property
    def present(self) -> bool:
        """Return whether the output comes from MPICH at all."""
        return self.ucx or bool(self.providers or self._local)

    @property
    def shared(self) -> bool:
        """Return whether ranks shared memory."""
        return bool(self._local)

    @property
    def networked(self) -> bool:
        """Return whether ranks used the network module.

        They do if some have no neighbour on their host, or if there are several hosts.
        """
        hosts = sum(local == 0 for local in self._local.values())
        return not self._local or hosts > 1 or len(self._local) < self._size
