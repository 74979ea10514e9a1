"""The log of UCX at level info: its version, and the lanes of each kind of connection.

From src/ucp/core/ucp_context.c and ucp_worker.c. 1.13 numbers the kinds (`ep_cfg[1]: tag(tcp/lo tcp/eth0)`). From 1.15
on they have names too (`ucp_context_0 intra-node cfg#1 tag(tcp/eth0)`).

`tag(...)` lists the lanes of short messages and those of rendezvous. No line at this level shows how UCX divides a
message among them. Before 1.16 (UCX_PROTO_ENABLE=n) a rendezvous uses only lanes that reach the memory of another
process. With `posix/memory tcp/eth0` 1.13.1 sent 64 KiB by posix and 4 MiB by tcp, 1.18.1 both by posix. `rma(...)` and
`rma_am(...)` list the lanes of one-sided communication.
"""

from __future__ import annotations

import re

from pytest_hetgpu.model.transport_classes import OFF_HOST, ON_HOST, UNKNOWN, Connection, connection

INFO = {"UCX_LOG_LEVEL": "info"}
DEBUG = {"UCX_LOG_LEVEL": "debug"}
"""Settings that bug reports to UCX require. A UCX built without debug output prints a warning and continues."""

# A release that does not fit its user's prints a warning in place of its version.
_VERSION = re.compile(r"\bUCX\s+(?:INFO\s+Version |WARN\s+UCP API version is incompatible: .*actual )(\d[\w.]*)")
_LANES = re.compile(r"\bUCX\s+INFO\s.*?\b(?:(intra-node |inter-node )?cfg#\d+|ep_cfg\[\d+\]:)\s+(.*\S)")
_LISTED = re.compile(r"\b(tag|rma|rma_am)\(([^()]*)\)")
# Shared memory for copies of messages, and transports that reach the memory of the other process.
_COPIED = frozenset(("ucx/posix", "ucx/sysv"))
_MAPPED = frozenset(("ucx/cma", "ucx/knem", "ucx/xpmem", "ucx/cuda_ipc", "ucx/rocm_ipc", "ucx/ze_ipc"))
_PATHS = {"intra-node ": ON_HOST, "inter-node ": OFF_HOST}


class UcxLog:
    """The connections in the log of UCX, fed with every line that contains one of `triggers`."""

    triggers = (b"UCX  INFO  Version", b"UCP API version is incompatible", b"cfg#", b"ep_cfg[")

    def __init__(self) -> None:
        self.version: str | None = None
        self.connections: set[Connection] = set()
        self.windows: set[Connection] = set()

    def with_uncertainty(self, one: Connection) -> Connection:
        """Mark the components that may carry short messages only, by this version of UCX."""
        short = {*one.components} & _COPIED
        others = {*one.components} - _COPIED
        if not short or not others or not others.isdisjoint(_MAPPED) or self._new:
            return one
        return one._replace(unsure=tuple(sorted(short)))

    @property
    def _new(self) -> bool:
        numbers = re.match(r"(\d+)\.(\d+)", self.version or "")
        return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (1, 16)

    def feed(self, line: str) -> None:
        """Read a line. An entry with a lane `self` is a rank's connection to itself, and does not count."""
        version = _VERSION.search(line)
        if version:
            self.version = version[1]
            return
        found = _LANES.search(line)
        if not found:
            return
        for use, lanes in _LISTED.findall(found[2]):
            names = {f"ucx/{lane.partition('/')[0]}" for lane in lanes.split()}
            if names and "ucx/self" not in names:
                seen = self.connections if use == "tag" else self.windows
                seen.add(connection(_PATHS.get(found[1] or "", UNKNOWN), names))
