"""libibverbs and programs that use it directly.

libibverbs/init.c and dynamic_driver.c; perftest (src/perftest_resources.c, perftest_communication.c and the tools'
mains); and completions by their status's name. Lines of UCX, NCCL and libfabric have parsers of their own. Warnings of
libibverbs are harmless: a driver that cannot be loaded is one for absent hardware.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.signatures._messages.verbs import completion, status_of
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_OTHERS = ("UCX ", "NCCL ", "libfabric:")

# Statuses caused by the peer or the path to it; WR_FLUSH_ERR follows another one.
_FAR = frozenset(
    f"IBV_WC_{name}" for name in ("RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "REM_ABORT_ERR", "RESP_TIMEOUT_ERR")
)


class Verbs(RuleParser, rows="verbs"):
    """libibverbs, perftest, and completion errors wherever they are named."""

    def feed(self, line: LogLine) -> None:
        if not any(other in line.text[:400] for other in _OTHERS):
            super().feed(line)

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        status = groups.get("status") or status_of(groups.get("words", ""))
        if status is None:
            return super().build_match(rule, groups, line)
        status = completion(int(status)) if status.isdecimal() else status
        rule = MatchRule(
            rule.trigger,
            Kind.NETWORK_FAILURE if status in _FAR else Kind.ERROR,
            rule.key,
            Priority.CONSEQUENCE if status == "IBV_WC_WR_FLUSH_ERR" else rule.priority,
            fatal=rule.fatal,
        )
        detail = groups.get("detail") or groups.get("words") or status
        return super().build_match(rule, {**groups, "status": status, "words": status, "detail": detail}, line)
