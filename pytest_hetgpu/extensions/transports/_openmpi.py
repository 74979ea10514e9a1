"""Open MPI: the parameters that pin a transport and log it, and the parsers of that log.

From release 5 on, `ompi_display_comm mpi_init` prints a table at the end of MPI_Init
(ompi/mca/hook/comm_method/hook_comm_method_fns.c). Release 4 has no such table. At low verbosity each of its layers
logs its choice:

- the point-to-point layer: `selected ob1 best priority 20` (ompi/mca/pml/base)
- its byte transfer layer to each rank: `mca: bml: Using vader btl for send to ...` (ompi/mca/bml/r2)
- OFI's provider: `mtl:ofi:prov: tcp` (ompi/mca/mtl/ofi)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.extensions.transports._ucx_log import INFO
from pytest_hetgpu.extensions.transports.base import Rendering
from pytest_hetgpu.model.job import Stack
from pytest_hetgpu.model.transport_classes import OFF_HOST, ON_HOST, UNKNOWN, Connection, connection

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
