"""libibverbs and programs that use it directly.

libibverbs/init.c and dynamic_driver.c; perftest (src/perftest_resources.c, perftest_communication.c and the tools'
mains); and completions by their status's name. Lines of UCX, NCCL and libfabric have parsers of their own. Warnings of
libibverbs are harmless: a driver that cannot be loaded is one for absent hardware.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.signatures._messages.verbs import STATUSES, completion, status_of
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_NONE, _MEMORY, _NET = Kind.TRANSPORT_UNAVAILABLE, Kind.OUT_OF_MEMORY, Kind.NETWORK_FAILURE
_OTHERS = ("UCX ", "NCCL ", "libfabric:")
_NAMES = "|".join(name for name, _ in STATUSES[1:])
_WORDS = "|".join(words for _, words in STATUSES[1:] if words.count(" ") > 1)

# Statuses caused by the peer or the path to it; WR_FLUSH_ERR follows another one.
_FAR = frozenset(
    f"IBV_WC_{name}" for name in ("RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "REM_ABORT_ERR", "RESP_TIMEOUT_ERR")
)
_CALLS = (
    r"(?P<call>ibv_(?:exp_)?(?:create_\w{2,30}|reg_\w{1,20}mr\w{0,20}|reg_mr|alloc_\w{1,20}|open_device|modify_qp))"
)


class Verbs(RuleParser):
    """libibverbs, perftest, and completion errors wherever they are named."""

    rules = (
        MatchRule("libibverbs: Warning:"),
        MatchRule(
            "libibverbs: Fatal:",
            _NONE,
            "kernel-abi@libibverbs",
            pattern=r"libibverbs: Fatal: (?P<detail>kernel ABI version .{1,120})",
            fatal=False,
        ),
        MatchRule(
            "Cannot allocate memory",
            _MEMORY,
            "{call}@verbs",
            pattern=rf"{_CALLS}\b.{{0,300}}?(?P<detail>Cannot allocate memory)",
            fatal=False,
        ),
        MatchRule(
            "ibv_open_device",
            _NONE,
            "ibv_open_device@verbs",
            pattern=r"(?P<detail>ibv_open_device\b.{0,120}\bfailed.{0,100})",
            fatal=False,
        ),
        # perftest
        MatchRule("Unable to find the Infiniband/RoCE device", _NONE, "no-device@perftest"),
        MatchRule("IB device ", _NONE, "no-device@perftest", pattern=r"\b(?P<detail>IB device \S{1,64} not found)"),
        MatchRule("Unable to Connect the HCA's through the link", _NET, "no-connection@perftest", Priority.RELAYED),
        MatchRule(
            "Couldn't connect to ",
            _NET,
            "no-connection@perftest",
            pattern=r"^\s*(?P<detail>Couldn't connect to [\w.-]{1,255}:\d{1,5})\s*$",
        ),
        MatchRule("Couldn't allocate MR", _MEMORY, "ibv_reg_mr@perftest"),
        MatchRule(
            "Failed to modify QP",
            Kind.NETWORK_FAILURE,
            "modify_qp@perftest",
            Priority.RELAYED,
            pattern=r"^\s*Failed to modify QP.*: (?P<detail>Connection timed out|.* is unreachable|No route to host)",
        ),
        MatchRule(
            "Failed to modify QP",
            Kind.ERROR,
            "modify_qp@perftest",
            Priority.RELAYED,
            pattern=r"^\s*Failed to modify QP",
        ),
        MatchRule("Couldn't create CQ", Kind.ERROR, "create_cq@perftest", pattern=r"^\s*Couldn't create CQ"),
        MatchRule(
            "Couldn't get context for the device",
            _NONE,
            "no-context@perftest",
            pattern=r"^\s*Couldn't get context for the device",
        ),
        MatchRule(
            " Failed status",
            _NET,
            "{status}@perftest",
            Priority.CAUSE,
            pattern=r"^\s*(?P<detail>Failed status[- ](?:[\w /]{1,60}\()?(?P<status>\d{1,3})\)?: wr_id.{0,80})",
        ),
        # Other messages that contain a status, by its name or in ibv_wc_status_str's text.
        MatchRule("IBV_WC_", _NET, "{status}@verbs", pattern=rf"\b(?P<status>IBV_WC_(?:{_NAMES}))\b", fatal=False),
        *(
            MatchRule(trigger, _NET, "{words}@verbs", pattern=rf"\b(?P<words>{_WORDS})\b", fatal=False)
            for trigger in (
                "retry counter exceeded",
                "local protection error",
                "Work Request Flushed",
                "remote access error",
            )
        ),
    )

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
            _NET if status in _FAR else Kind.ERROR,
            rule.key,
            Priority.CONSEQUENCE if status == "IBV_WC_WR_FLUSH_ERR" else rule.priority,
            fatal=rule.fatal,
        )
        detail = groups.get("detail") or groups.get("words") or status
        return super().build_match(rule, {**groups, "status": status, "words": status, "detail": detail}, line)
