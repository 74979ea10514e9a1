"""MPICH (device ch4): the variables that pin a transport and make it show itself, and what is printed then.

With MPIR_CVAR_DEBUG_SUMMARY=2 the network module that was initialised says so (src/mpid/ch4/netmod/*/*_init.c), and
every rank that shares memory with others of its host prints how far they are, `Rank: 1, Local_rank: 1 [ 0, 0 ]`
(src/mpid/ch4/shm/posix/posix_init.c). A rank that prints no such line talks to all others over the network module.
"""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.transports._ucx_log import INFO
from pytest_hetgpu.extensions.transports.base import Rendering

VENDOR = "MPICH"
SHARED_MEMORY = "ch4/posix"

_LOCAL = re.compile(r"Rank: (\d+), Local_rank: (\d+) \[ ")
_PROVIDER = re.compile(r"\blibfabric provider: ([\w+-]+)")
_SIZE = re.compile(r'\{"t":"hello",.*?"size":(\d+),')


def pinned(netmod: str | None, env: dict[str, str] | None = None) -> Rendering:
    """The network module for all traffic, shared memory being kept out; None lets ranks of one host share memory."""
    module = {} if netmod is None else {"MPIR_CVAR_CH4_NETMOD": netmod}
    local = {"MPIR_CVAR_NOLOCAL": "0" if netmod is None else "1"}
    return Rendering({}, {**module, **local, "MPIR_CVAR_DEBUG_SUMMARY": "2", **INFO, **(env or {})})


def verbose(env: dict[str, str] | None = None) -> Rendering:
    """MPICH's own summary, which is on already, and the whole stack of an error; libraries below add theirs."""
    return Rendering({}, {"MPIR_CVAR_PRINT_ERROR_STACK": "1", **(env or {})})


class MpichSummary:
    """What MPICH says of its network module and of shared memory."""

    triggers = (b"Local_rank: ", b"libfabric provider: ", b"UCX netmod Capability", b'{"t":"hello"')

    def __init__(self) -> None:
        self.ucx = False
        self.providers: set[str] = set()
        self._local: dict[int, int] = {}
        self._size = 0

    def feed(self, line: str) -> None:
        """Takes a line of the summary, or a rank's greeting for the number of ranks."""
        # Ranks print in pieces, so that one line may hold the beginnings of several.
        self._local.update((int(rank), int(local)) for rank, local in _LOCAL.findall(line))
        provider, size = _PROVIDER.search(line), _SIZE.search(line)
        if provider:
            self.providers.add(provider[1])
        if size:
            self._size = max(self._size, int(size[1]))
        self.ucx = self.ucx or "UCX netmod Capability" in line

    @property
    def present(self) -> bool:
        """Whether this is an output of MPICH's at all."""
        return self.ucx or bool(self.providers or self._local)

    @property
    def shared(self) -> bool:
        """Whether ranks shared memory."""
        return bool(self._local)

    @property
    def networked(self) -> bool:
        """Whether ranks used the network module: some have no neighbour on their host, or there are several hosts."""
        hosts = sum(local == 0 for local in self._local.values())
        return not self._local or hosts > 1 or len(self._local) < self._size
