"""Warnings of aws-ofi-nccl, the plugin for libfabric of NCCL and RCCL.

`NCCL_OFI_WARN` (include/nccl_ofi_log.h; the calls are in src/nccl_ofi_*.cpp) writes `NET/OFI TEXT` into the log of
NCCL. NCCL itself logs later that a call failed, and how the run ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

# NCCL's prefix (src/debug.cc): host, process, thread, and the device.
_HOST = lazy(r"(?P<host>[A-Za-z][\w-]{0,63})[\w.-]{0,190}:\d{1,10}:\d{1,10} ")
_NO_MEMORY = lazy(r"[Cc]annot allocate memory|[Oo]ut of memory|allocation failed")


class AwsOfi(RuleParser, rows="aws_ofi"):
    """Parser of warnings about a failed transfer or start of the plugin; NCCL reports all other failures."""

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if found := _HOST.match(line.text):
            groups = {**groups, "host": found["host"]}
        read = super().build_match(rule, groups, line)
        if rule.kind is Kind.ERROR and _NO_MEMORY.search(groups.get("detail", "")):
            return replace(read, signature=replace(read.signature, kind=Kind.OUT_OF_MEMORY))
        return read
