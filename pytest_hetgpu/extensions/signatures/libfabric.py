"""The log of libfabric (src/log.c: `libfabric:PID:TIME:HOOK:PROVIDER:SUBSYSTEM:FUNCTION():LINE<warn> TEXT`).

A program tries features that may be absent, so most warnings mean nothing. The parser matches texts that providers
print before they give up. They are cxi (prov/cxi/src, in which CXIP_FATAL ends in abort), efa (prov/efa/src, with the
texts of efa_errno.h), tcp, verbs, rxm and shm. Errors that callers print are in the callers' parsers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.routes import no_route
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_NONE, _MEMORY, _NET = Kind.TRANSPORT_UNAVAILABLE, Kind.OUT_OF_MEMORY, Kind.NETWORK_FAILURE
_LOG = (
    r"libfabric:\d{1,10}:[^<>\n]{0,200}?(?P<caller>\w{1,80})\(\):\d{1,6}<(?:warn|error)> "
    r"(?:(?P<host>[\w-]{1,64})[\w.-]{0,190}: )?"
)
_CXI = rf"{_LOG}[^\n]{{0,80}}?"
# efa_errno.h: the peer, or the way to it.
_PEER = lazy(r"[Uu]nresponsive|[Uu]nreachable|reset by remote|peer closed|resource not ready|QP does not exist")
_NO_MEMORY = lazy(r"[Cc]annot allocate memory|[Oo]ut of memory")


def _warning(text: str, kind: Kind, key: str, pattern: str = "", **more: bool | Priority) -> MatchRule:
    """Return the rule of a warning that holds `text`, followed by `pattern`."""
    fatal, priority = bool(more.get("fatal", False)), Priority(more.get("priority", Priority.CAUSE))
    return MatchRule(
        text,
        kind,
        key,
        priority,
        pattern=rf"{_CXI}(?P<detail>{pattern or re.escape(text) + '.{0,200}'})",
        fatal=fatal,
    )


class Libfabric(RuleParser):
    """The cxi, efa, tcp, verbs and shm providers."""

    rules = (
        # cxip_nic.c, cxip_dom.c, cxip_info.c, cxip_if.c: no right to a VNI, no device.
        _warning("Failed to find valid default rgroup and vni", _NONE, "no-vni@cxi"),
        *(
            _warning(text, _NONE, "no-vni@cxi")
            for text in (
                "VNI not found in SLINGSHOT_VNIS",
                "No valid VNIs for",
                "Invalid svc_id",
                "cxil_get_svc with",
                "cxip_gen_auth_key failed",
            )
        ),
        _warning("Failed to allocate CP", _NONE, "no-vni@cxi"),
        _warning("Failed to open CXI Device", _NONE, "no-device@cxi"),
        _warning("cxil_get_device_list failed", _NONE, "no-device@cxi"),
        # cxip_evtq.c, cxip_msg_hpc.c: queues and lists of the NIC are full, which ends the process.
        MatchRule(
            "Event Queue overflow detected",
            Kind.ERROR,
            "event-queue-overflow@cxi",
            pattern=rf"(?:{_CXI})?(?P<detail>(?:Cassini|H/W) Event Queue overflow detected)",
        ),
        _warning("LE exhaustion during flow control", Kind.ERROR, "le-exhaustion@cxi", fatal=True),
        _warning("LE resources not recovered during flow control", Kind.ERROR, "le-exhaustion@cxi", fatal=True),
        _warning("[Fatal] ", Kind.ERROR, "fatal@cxi", fatal=True),
        # cxip_iomm.c; libcxi prints the second form itself.
        _warning("cxil_map lni", Kind.ERROR, "cxil_map@cxi"),
        MatchRule("cxil_map: write error", Kind.ERROR, "cxil_map@cxi", detail="cxil_map: write error", fatal=False),
        _warning("UNDELIVERABLE", _NET, "undeliverable@cxi", r".{0,150}UNDELIVERABLE"),
        # efa_base_ep.c and efa_rdm_ope.c end the process if no caller can get the error.
        MatchRule(
            "Libfabric EFA provider has encountered an internal error",
            Kind.ERROR,
            "{words}@efa",
            then=r"EFA internal error: \(-?\d{1,6}\) (?P<detail>(?P<words>[^()\n]{3,80}).{0,100})",
            within=8,
        ),
        _warning(
            "EFA provider internal ",
            Kind.ERROR,
            "{words}@efa",
            r"EFA provider internal [rt]xe failure err: -?\d{1,6}, message: (?P<words>[^()\n]{3,80}).{0,100}",
        ),
        _warning(
            "becomes unresponsive", _NET, "unresponsive-peer@efa", r"The peer of address .{1,80} becomes unresponsive"
        ),
        _warning("Unable to register MR", Kind.ERROR, "register-memory@efa"),
        MatchRule(
            "Libfabric EFA provider is operating in",
            Kind.ERROR,
            "fork@efa",
            detail="fork() with the EFA provider",
        ),
        MatchRule("This value will cause EFA communication to deadlock", Kind.ERROR, "FI_EFA_TX_MIN_CREDITS@efa"),
        # xnet_*.c, rxm_*.c, verbs_*.c
        _warning("connection failure (sockerr", _NET, "connect@tcp", priority=Priority.SYMPTOM),
        _warning("connect failure ", _NET, "connect@tcp", priority=Priority.SYMPTOM),
        _warning("msg recv failed ret", _NET, "recv@tcp", priority=Priority.SYMPTOM),
        _warning("fi_eq_readerr: err: ", _NET, "connect@rxm", priority=Priority.SYMPTOM),
        _warning("fi_cq_readerr: err: ", _NET, "completion@rxm", priority=Priority.SYMPTOM),
        _warning("failed to bind listener", _NET, "bind@tcp"),
        _warning(
            "Cannot allocate memory",
            _MEMORY,
            "{call}@verbs",
            r"(?P<call>(?:ibv|rdma|fi)_\w{1,40}|vrb_\w{1,40}).{0,200}Cannot allocate memory.{0,20}",
        ),
        _warning("Not enough available space in ", _MEMORY, "dev-shm@shm"),
        _warning("shm_open error", Kind.ERROR, "shm_open@shm"),
        # util/info.c, fabtests
        MatchRule(
            "No data available",
            _NONE,
            "fi_getinfo-No-data-available@libfabric",
            pattern=r"^(?P<detail>fi_getinfo(?:\(\))?: .{0,120}-61.{0,3} ?\(No data available\))",
        ),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if "words" in groups:
            groups = {**groups, "words": slug(groups["words"])}
        read = super().build_match(rule, groups, line)
        said = groups.get("detail", "")
        if read.signature.key == "connect@tcp" and no_route(said):
            return replace(read, priority=Priority.RELAYED)
        if rule.kind is Kind.ERROR and _NO_MEMORY.search(said):
            return replace(read, signature=replace(read.signature, kind=_MEMORY))
        if "words" in groups and _PEER.search(said):
            return replace(read, signature=replace(read.signature, kind=_NET))
        return read
