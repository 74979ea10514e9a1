"""Horovod's stall inspector (horovod/common/stall_inspector.cc): ranks that wait for absent ones.

It repeats its warning, and shuts the job down only if HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is set. So a warning counts
only if nothing follows it.
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
