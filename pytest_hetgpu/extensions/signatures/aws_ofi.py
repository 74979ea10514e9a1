"""Warnings of aws-ofi-nccl, the plugin for libfabric of NCCL and RCCL.

`NCCL_OFI_WARN` (include/nccl_ofi_log.h; the calls are in src/nccl_ofi_*.cpp) writes `NET/OFI TEXT` into the log of
NCCL. NCCL itself logs later that a call failed, and how the run ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_NONE, _NET = Kind.TRANSPORT_UNAVAILABLE, Kind.NETWORK_FAILURE
# Version 1.0 wrote prefixes of its own.
_WARN = r"(?:NCCL WARN|WARN: Function: \w+ Line: \d+:) NET/OFI "
# NCCL's prefix (src/debug.cc): host, process, thread, and the device.
_HOST = lazy(r"(?P<host>[A-Za-z][\w-]{0,63})[\w.-]{0,190}:\d{1,10}:\d{1,10} ")
_NO_MEMORY = lazy(r"[Cc]annot allocate memory|[Oo]ut of memory|allocation failed")


def _warning(text: str, kind: Kind, key: str, priority: Priority = Priority.CAUSE) -> MatchRule:
    """Return the rule of a warning of the plugin that begins with or holds `text`."""
    trigger = max(re.split(r"\.\{.*?\}|\\|\(\?:.*?\)\??", text), key=len)
    return MatchRule(
        trigger,
        kind,
        f"{key}@aws-ofi-nccl",
        priority,
        pattern=rf"{_WARN}.{{0,60}}?(?P<detail>{text}.{{0,300}})",
        fatal=False,
    )


class AwsOfi(RuleParser):
    """Parser of warnings about a failed transfer or start of the plugin; NCCL reports all other failures."""

    rules = (
        _warning("Unable to insert remote address into address vector", _NET, "address-vector"),
        _warning("Couldn't open a fabric access domain", _NONE, "no-domain"),
        _warning("Couldn't create domain", _NONE, "no-domain"),
        _warning("Couldn't open a fabric provider", _NONE, "no-fabric"),
        _warning("Couldn't create fabric", _NONE, "no-fabric"),
        _warning(r"OFI fi_getinfo\(\) call failed", _NONE, "no-provider"),
        _warning("Couldn't find any optimal provider", _NONE, "no-provider"),
        _warning("EFA provider requires at least libfabric version", _NONE, "old-libfabric"),
        _warning("Insufficient Libfabric devices found", _NONE, "no-devices"),
        _warning("Unable to find a protocol that worked", _NONE, "no-protocol", Priority.RELAYED),
        _warning("Initializing plugin failed", _NONE, "no-protocol", Priority.RELAYED),
        _warning("Couldn't allocate endpoint", Kind.ERROR, "endpoint"),
        _warning("Couldn't enable endpoint", Kind.ERROR, "endpoint"),
        _warning("Couldn't open CQ", Kind.ERROR, "completion-queue"),
        _warning("Couldn't create completion queue", Kind.ERROR, "completion-queue"),
        _warning("Couldn't register memory region", Kind.ERROR, "register-memory"),
        _warning("Unable to register memory", Kind.ERROR, "register-memory"),
        _warning("Could not register memory", Kind.ERROR, "register-memory", Priority.RELAYED),
        _warning("completed with error", _NET, "completion"),
        _warning("Unable to retrieve completion queue entries", _NET, "completion", Priority.SYMPTOM),
        _warning("Unable to read from fi_cq_readerr", _NET, "completion", Priority.SYMPTOM),
        _warning("Error posting ", _NET, "post", Priority.SYMPTOM),
        _warning("Could not send request for device", _NET, "post", Priority.SYMPTOM),
        _warning("Unable to issue read operation for dev", _NET, "post", Priority.SYMPTOM),
        _warning("GDR support reported to NCCL but then couldn't be configured", Kind.ERROR, "gdr"),
        _warning("NCCL_OFI_NIC_DUP_CONNS set on platform", Kind.ERROR, "NIC_DUP_CONNS"),
        _warning("CUDA initialization failed", Kind.ERROR, "cuda-init"),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if found := _HOST.match(line.text):
            groups = {**groups, "host": found["host"]}
        read = super().build_match(rule, groups, line)
        if rule.kind is Kind.ERROR and _NO_MEMORY.search(groups.get("detail", "")):
            return replace(read, signature=replace(read.signature, kind=Kind.OUT_OF_MEMORY))
        return read
