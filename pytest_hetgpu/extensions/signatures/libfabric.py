"""The log of libfabric (src/log.c: `libfabric:PID:TIME:HOOK:PROVIDER:SUBSYSTEM:FUNCTION():LINE<warn> TEXT`).

A program tries features that may be absent, so most warnings mean nothing. The parser matches texts that providers
print before they give up. They are cxi (prov/cxi/src, in which CXIP_FATAL ends in abort), efa (prov/efa/src, with the
texts of efa_errno.h), tcp, verbs, rxm and shm. Errors that callers print are in the callers' parsers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.routes import no_route
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

# efa_errno.h: the peer, or the way to it.
_PEER = lazy(r"[Uu]nresponsive|[Uu]nreachable|reset by remote|peer closed|resource not ready|QP does not exist")
_NO_MEMORY = lazy(r"[Cc]annot allocate memory|[Oo]ut of memory")


class Libfabric(RuleParser, rows="libfabric"):
    """The cxi, efa, tcp, verbs and shm providers."""

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        read = super().build_match(rule, groups, line)
        said = groups.get("detail", "")
        if read.signature.key == "connect@tcp" and no_route(said):
            return replace(read, priority=Priority.RELAYED)
        if rule.kind is Kind.ERROR and _NO_MEMORY.search(said):
            return replace(read, signature=replace(read.signature, kind=Kind.OUT_OF_MEMORY))
        if "words" in groups and _PEER.search(said):
            return replace(read, signature=replace(read.signature, kind=Kind.NETWORK_FAILURE))
        return read
