"""UCC: errors logged by its core, collective (CL) and transport layers (TL), and its status in callers' messages.

Lines have the form of UCX with the component's name in place of `UCX` (src/utils/ucc_log.h,
src/components/*/ucc_*_log.h). Names of status are those of src/utils/ucc_status.c. Each layer tries its components, and
the next takes over if it fails. So an error at the start means nothing by itself. An error of a request that moved data
(`failure in ... completion`, src/components/tl/ucp/tl_ucp_sendrecv.c) means a wrong or missing result, even if the
program prints success afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_GONE, _NET = Kind.TRANSPORT_UNAVAILABLE, Kind.NETWORK_FAILURE

# Names of ucc_status.c, and the meaning of a call that ends with one.
_STATUS = {
    "Operation is not supported": _GONE,
    "Not implemented": _GONE,
    "Not found": _GONE,
    "Out of memory": Kind.OUT_OF_MEMORY,
    "Timeout expired": Kind.TIMEOUT,
    "Invalid parameter": Kind.ERROR,
    "Resources are not available for the operation": Kind.ERROR,
    "Unhandled error": Kind.ERROR,
}


class Ucc(RuleParser, rows="ucc"):
    """Parser of errors by component; if the transports are missing, the core reports that none is left."""

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        """Return the match of a failed call, with the kind of its status."""
        match = super().build_match(rule, groups, line)
        if rule.trigger.endswith(" ERROR"):
            return match
        kind = _STATUS.get(groups.get("status", ""), rule.kind)
        return replace(match, signature=replace(match.signature, kind=kind))
