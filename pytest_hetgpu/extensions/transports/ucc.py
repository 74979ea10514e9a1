"""ucc: collectives of UCC over another transport of the matrix, which carries all other messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pytest_hetgpu.extensions.transports import _mpich, _openmpi
from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports.base import (
    Rendering,
    Transport,
    TransportParser,
    TransportSettings,
    Word,
    Words,
)
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Node, Stack
from pytest_hetgpu.model.transport_classes import Connection, OneSided, TransportMember, connection

# UCC's map of teams of several ranks: `UCC  INFO \tHost: {0..4095}:TL_UCP:10 {4K..inf}:TL_UCP:10`
# (ucc_coll_score_map.c); its first line is `===== COLL_SCORE_MAP (team_id 1, size 2) =====`.
_LAYER = re.compile(r"\}:[TC]L_(\w+):")
_VERSION = re.compile(r"\bUCC\s+INFO\s+version: (\d[\w.]*)")


class UccSettings(TransportSettings):
    """`over`: a transport of this matrix; `tls`: layers of UCC's (ucp, nccl, rccl, ...), its own choice if absent."""

    over: Word
    tls: Words = ()


class Ucc(Transport):
    """coll/ucc in Open MPI, CH4_UCC in MPICH.

    The proof is the score map that UCC logs for each team. An MPI that was built without UCC ignores the settings and
    exits with 0. The log then shows the transport below only, which does not satisfy the request.
    """

    Settings = UccSettings
    settings: UccSettings
    vendors = (_openmpi.VENDOR, _mpich.VENDOR)
    layered = True

    @property
    def below(self) -> Transport:
        """Return the transport that it runs over."""
        assert self.lower is not None, "a matrix gives every layered transport what it is over"
        return self.lower

    def unsuitable(self, stack: Stack) -> str | None:
        return self.below.unsuitable(stack) or super().unsuitable(stack)

    @property
    def interface_setting(self) -> str:
        return self.below.interface_setting

    @property
    def exclusion_setting(self) -> str:
        return self.below.exclusion_setting

    def interface(self, node: Node) -> InterfaceChoice | None:
        return self.below.interface(node)

    def unreachable(self, node: Node, stack: Stack) -> str | None:
        return self.below.unreachable(node, stack)

    def render(self, node: Node, stack: Stack) -> Rendering:
        below = self.below.render(node, stack)
        env = {
            "UCC_LOG_LEVEL": "info",
            **({"UCC_CL_BASIC_TLS": ",".join(self.settings.tls)} if self.settings.tls else {}),
        }
        if stack.vendor == _mpich.VENDOR:
            return Rendering(below.mca, {**below.env, **env, "MPIR_CVAR_CH4_UCC_ENABLE": "1"})
        return Rendering({**below.mca, "coll_ucc_enable": "1", "coll_ucc_priority": "100"}, {**below.env, **env})

    def one_sided(self, stack: Stack, benchmark: bool) -> tuple[Rendering, OneSided] | None:
        """Return that of the transport below: UCC carries collectives alone."""
        return self.below.one_sided(stack, benchmark)

    def verbose(self, stack: Stack) -> Rendering:
        below = self.below.verbose(stack)
        mca = {} if stack.vendor == _mpich.VENDOR else {"coll_ucc_verbose": "10"}
        return Rendering({**below.mca, **mca}, {**below.env, "UCC_LOG_LEVEL": "debug", "UCC_COLL_TRACE": "debug"})

    def components(self) -> tuple[str, ...]:
        return tuple(f"ucc/{tl}:{lower}" for tl in self.settings.tls or ("*",) for lower in self.below.components())

    def members(self) -> tuple[TransportMember, ...]:
        return tuple(
            one._replace(components=tuple(f"ucc/*:{glob}" for glob in one.components)) for one in self.below.members()
        )

    @staticmethod
    def parser() -> TransportParser:
        return UccTransportParser()


class UccTransportParser:
    """A parser of the score map; `ucc/ucp:ucx/tcp` is layer UCP of UCC over tcp of UCX.

    Without a map only the transport below is seen.
    """

    triggers = (*MpiTransportParser.triggers, b":TL_", b":CL_", b"UCC  INFO  version")

    def __init__(self) -> None:
        self._below = MpiTransportParser()
        self._layers: set[str] = set()
        self._version: str | None = None

    def feed(self, line: str, number: int) -> None:
        """Read a line of UCC, or of the transport below."""
        self._below.feed(line, number)
        self._layers |= {name.lower() for name in _LAYER.findall(line)} - {"self"}
        version = _VERSION.search(line)
        if version:
            self._version = version[1]

    @property
    def transports(self) -> tuple[str, ...]:
        """Return the layers of UCC, each over every transport that was seen below."""
        below = self._below.transports
        return tuple(f"ucc/{name}:{lower}" for name in sorted(self._layers) for lower in below) or below

    @property
    def connections(self) -> frozenset[Connection]:
        """Return the connections that were seen below, with the layers of UCC over them."""
        return frozenset(map(self._above, self._below.connections))

    @property
    def windows(self) -> frozenset[Connection]:
        """Return the components of MPI windows, which UCC does not carry."""
        return self._below.windows

    def _above(self, one: Connection) -> Connection:
        if not self._layers:
            return one
        return connection(one.path, self._over(one.components), self._over(one.unsure))

    def _over(self, components: Iterable[str]) -> Iterator[str]:
        return (f"ucc/{layer}:{lower}" for layer in self._layers for lower in components)

    @property
    def versions(self) -> Mapping[str, str]:
        """Return the versions of UCC and UCX."""
        return {**self._below.versions, **({"ucc": self._version} if self._version else {})}
