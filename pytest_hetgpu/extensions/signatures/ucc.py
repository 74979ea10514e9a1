"""UCC: errors logged by its core, collective (CL) and transport layers (TL), and its status in callers' messages.

Lines have the form of UCX with the component's name in place of `UCX` (src/utils/ucc_log.h,
src/components/*/ucc_*_log.h). Names of status are those of src/utils/ucc_status.c. Each layer tries its components, and
the next takes over if it fails. So an error at the start means nothing by itself. An error of a request that moved data
(`failure in ... completion`, src/components/tl/ucp/tl_ucp_sendrecv.c) means a wrong or missing result, even if the
program prints success afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_CORE = ("UCC", "CL_BASIC", "CL_HIER", "CL_DOCA_UROM")
_TRANSPORTS = ("TL_UCP", "TL_CUDA", "TL_NCCL", "TL_RCCL", "TL_SHARP", "TL_SHM", "TL_MLX5", "TL_SELF", "TL_SPIN")
_MEMORY = ("cpu mc", "cuda mc", "rocm mc", "cpu ec", "cuda ec", "rocm ec")
_LOGGED = r"\] +[\w.+-]+:\d+ +(?P<component>[\w ]{1,16}?) +(?:ERROR|FATAL) +"

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
_NAMES = "|".join(_STATUS)
_CALLS = (
    *("ucc_init", "ucc_lib_config_read", "ucc_context_config_read", "ucc_context_create", "ucc_team_create_post"),
    *("ucc_team_create_test", "ucc_collective_init", "ucc_collective_post", "ucc_collective_test", "ucc_mem_map"),
)
_CALLED = rf"(?P<detail>\b(?P<entry>ucc_[a-z_]+) ?(?:\(.{{0,300}}\))?:? ?.{{0,60}}?(?P<status>{_NAMES}))"

# src/ucs/type/status.c of UCX: status of TL_UCP's requests if a peer or the network is gone.
_LOST = (
    r"Connection reset by remote peer|Endpoint timeout|Endpoint is not connected|Destination is unreachable"
    r"|Input/output error|Operation timed out|Operation rejected by remote peer"
)
_COMPLETED = r"failure in [\w ]{2,30}? completion "
_NOTHING_LEFT = (
    r"no (?:tl|TL|CL) (?:contexts?|teams?) (?:were |was |are )?(?:created|available)|no TLs are \w+ for "
    r"|no CL components were found|lib_init failed: no CL libs were opened|no suitable executor available"
    r"|no components supported memory type "
)


def _of(components: Iterable[str], row: MatchRule) -> list[MatchRule]:
    """Return the rule of an error that several components log; the row's pattern is searched in the message."""
    pattern = f"{_LOGGED}(?P<detail>{row.pattern}.*)"
    return [row._replace(trigger=f"{name:4} ERROR", pattern=pattern) for name in components]


def _row(words: str, kind: Kind, key: str, priority: Priority = Priority.CAUSE, *, fatal: bool = False) -> MatchRule:
    return MatchRule("", kind, key, priority, words, fatal=fatal)


_ALL = (*_CORE, *_TRANSPORTS, *_MEMORY)


class Ucc(RuleParser):
    """Parser of errors by component; if the transports are missing, the core reports that none is left."""

    rules: ClassVar = (
        # tl/cuda/tl_cuda_topo.c: no GPU, or no path between two.
        *_of(("TL_CUDA",), MatchRule("", pattern=r".*(?:tl_cuda_topo|nvml|NVML)")),
        # At the end of a run pending requests are cancelled.
        *_of(("TL_UCP",), MatchRule("", pattern=_COMPLETED + "Request canceled")),
        *_of(
            ("TL_UCP",),
            _row(f"{_COMPLETED}(?P<status>{_LOST})", _NET, "{status}@{component}", Priority.SYMPTOM, fatal=True),
        ),
        *_of(("TL_UCP",), _row(_COMPLETED + r"(?P<status>.{1,80})", Kind.ERROR, "{status}@{component}", fatal=True)),
        # tl/nccl/tl_nccl.h, tl/rccl/tl_rccl.h: the library's own log has more.
        *_of(
            ("TL_NCCL", "TL_RCCL"),
            _row(r"(?:N|R)CCL error -?\d+ (?P<status>.{1,80})", Kind.ERROR, "{status}@{component}", Priority.RELAYED),
        ),
        # core/ucc_context.c, ucc_team.c, ucc_lib.c, cl/basic, cl/hier, components/ec and mc: nothing is left to try.
        *_of(_ALL, _row(_NOTHING_LEFT, _GONE, "no-transport@ucc")),
        *_of(_CORE, _row(r"failed to create tl contexts", _GONE, "no-transport@ucc", Priority.RELAYED)),
        *_of(
            _ALL,
            _row(
                r".*(?:thread mode multiple is not supported|wasn't initialized with mt support)",
                _GONE,
                "no-thread-multiple@ucc",
            ),
        ),
        *_of(
            _ALL, _row(r".{1,200}\bnot (?:supported|implemented)", _GONE, "not-supported@{component}", Priority.RELAYED)
        ),
        *_of(
            _ALL,
            _row(r"(?i:.*out of memory|failed to allocate)", Kind.OUT_OF_MEMORY, "out-of-memory@ucc", Priority.SYMPTOM),
        ),
        *_of(_ALL, _row(r".*(?:Timeout expired|timed out)", Kind.TIMEOUT, "timeout@{component}", Priority.SYMPTOM)),
        *_of(_ALL, _row(r"", Kind.ERROR, "error@{component}", Priority.SYMPTOM)),
        # Open MPI's coll/ucc (ompi/mca/coll/ucc/coll_ucc_debug.h) leaves the work to another component.
        MatchRule("coll_ucc_", pattern=r"Error: \S*coll_ucc_\w+\.\w:\d+ "),
        # Programs and torch's ProcessGroupUCC (torch/csrc/distributed/c10d/UCCUtils.hpp) print the status of a call.
        *(MatchRule(call, Kind.ERROR, "{status}@{entry}", Priority.RELAYED, _CALLED) for call in _CALLS),
        MatchRule(
            "[ProcessGroupUCC",
            Kind.ERROR,
            "{status}@ProcessGroupUCC",
            Priority.RELAYED,
            rf"\[ERROR\] (?P<detail>.{{0,200}}?(?P<status>{_NAMES}))",
        ),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        """Return the match of a failed call, with the kind of its status."""
        match = super().build_match(rule, groups, line)
        if rule.trigger.endswith(" ERROR"):
            return match
        kind = _STATUS.get(groups.get("status", ""), rule.kind)
        return replace(match, signature=replace(match.signature, kind=kind))
