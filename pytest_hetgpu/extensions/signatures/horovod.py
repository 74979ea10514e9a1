"""Horovod's stall inspector (horovod/common/stall_inspector.cc): ranks that wait for others that do not come.

It warns again and again, and shuts the job down only where HOROVOD_STALL_SHUTDOWN_TIME_SECONDS says so: a warning
counts where nothing follows it.
"""

from __future__ import annotations

from pytest_hetgpu.extensions.signatures.base import Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind


class Horovod(RuleParser):
    """Stalled tensors, and the ranks that are missing."""

    rules = (
        MatchRule(
            "are waiting for remainder of ranks for more than",
            Kind.HANG,
            "stalled@horovod",
            Priority.SYMPTOM,
            pattern=r"(?P<detail>One or more tensors were submitted .{0,60}by subset of ranks)",
            then=r"\[missing ranks: ?(?P<rank>\d{1,7})",
            fatal=False,
        ),
    )
