"""What UCX says at log level info: its version, and the lanes of each kind of connection.

From src/ucp/core/ucp_context.c and ucp_worker.c; 1.13 numbers its kinds (`ep_cfg[1]: tag(tcp/lo tcp/eth0)`), later ones
name them too (`ucp_context_0 intra-node cfg#1 tag(tcp/eth0)`).
"""

from __future__ import annotations

import re

INFO = {"UCX_LOG_LEVEL": "info"}
DEBUG = {"UCX_LOG_LEVEL": "debug"}
"""What bug reports to UCX are asked to have; a UCX that was built without it says so and goes on."""

_VERSION = re.compile(r"\bUCX\s+INFO\s+Version (\d[\w.]*)")
_LANES = re.compile(r"\bUCX\s+INFO\s.*\b(?:cfg#\d+|ep_cfg\[\d+\]:)\s+tag\(([^()]*)\)")


class UcxLog:
    """Collects what UCX logs; fed with every line that holds one of `triggers`."""

    triggers = (b"UCX  INFO  Version", b"cfg#", b"ep_cfg[")

    def __init__(self) -> None:
        self.version: str | None = None
        self.lanes: set[str] = set()

    def feed(self, line: str) -> None:
        """A rank's connection to itself is none between ranks: the entry that has a lane `self` is passed over."""
        version = _VERSION.search(line)
        if version:
            self.version = version[1]
            return
        found = _LANES.search(line)
        if found:
            names = {lane.partition("/")[0] for lane in found[1].split()}
            self.lanes |= set() if "self" in names else names
