"""What Open MPI and UCX print of the connections they made.

Open MPI 5 prints a table at the end of MPI_Init when asked with `ompi_display_comm mpi_init`
(ompi/mca/hook/comm_method/hook_comm_method_fns.c); UCX says its version and lanes at log level info
(src/ucp/core/ucp_context.c and ucp_worker.c).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_hetgpu.model import Node, Stack

DISPLAY = {"ompi_display_comm": "mpi_init"}

_SUMMARY = re.compile(r"^\s*(?:on|off)-host:\s+(?:all|most) connections are (.+?)\s*$")
# Below "Exceptions:", what each host with a connection unlike most has: `  host 1: [2x tcp] [1x ucx=posix;memory]`.
_EXCEPTION = re.compile(r"^\s*host \d+:((?: \[\d+x [^\]]+\])+)\s*$")
_EXCEPTED = re.compile(r"\[\d+x ([^\]]+)\]")
_UCX_VERSION = re.compile(r"\bUCX\s+INFO\s+Version (\d[\w.]*)")


def connections(text: str) -> set[str]:
    """Component names in one entry: `tcp` is ob1's btl, `ucx=posix;memory,tcp;eth0` are two of UCX's transports.

    A rank's connection to itself is none between ranks.
    """
    method = text.removesuffix(" or self")
    pml, equals, lanes = method.partition("=")
    if equals:
        names = {lane.partition(";")[0] for lane in lanes.split(",")}
        return {f"{pml}/{name}" for name in names - {"self"}}
    if method in ("n/a", "self"):
        return set()
    return {method if method in ("ucx", "ofi") else f"ob1/{method}"}


class OpenMpiReader:
    """Reads the connection summary with its exceptions, and UCX's version beside it."""

    triggers = (b"-host:", b"  host ", b"UCX  INFO  Version")

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._versions: dict[str, str] = {}

    def feed(self, line: str, number: int) -> None:
        """Takes a line of the table, of its exceptions, or of UCX's greeting; any other is passed over."""
        summary = _SUMMARY.match(line)
        if summary:
            self._seen |= connections(summary[1])
            return
        exception = _EXCEPTION.match(line)
        if exception:
            self._seen |= {name for method in _EXCEPTED.findall(exception[1]) for name in connections(method)}
            return
        version = _UCX_VERSION.search(line)
        if version:
            self._versions["ucx"] = version[1]

    @property
    def transports(self) -> tuple[str, ...]:
        """Components that carried data between ranks, sorted."""
        return tuple(sorted(self._seen))

    @property
    def versions(self) -> Mapping[str, str]:
        """UCX's own version where it said it."""
        return self._versions


def netdev(node: Node, asked: str | None) -> str:
    """The interface to pin: the transport's own, else the fabric's, else loopback, as all ranks share the host.

    Left to itself Open MPI's TCP tries every interface and hangs where one of them (a docker bridge) leads nowhere.
    """
    return asked or node.hardware.fabric.netdev or "lo"


def shows_connections(stack: Stack) -> bool:
    """Whether this release can print the table (4.x cannot)."""
    return stack.vendor == "Open MPI" and int(stack.version.split(".")[0]) >= 5
