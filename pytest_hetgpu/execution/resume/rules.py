"""The options that a resumed run must repeat. A new option needs an entry here."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class ResumeRule(str, enum.Enum):
    """The rule for an option of a resumed run: the `SAME` value, files with the `SAME_CONTENT`, or `FREE`."""

    SAME = "the same value"
    SAME_CONTENT = "files that hold the same"
    FREE = "anything"


RULES: Mapping[str, ResumeRule] = {
    # What verdicts are made of.
    "matrix": ResumeRule.SAME_CONTENT,
    "inventory": ResumeRule.SAME_CONTENT,
    "knowledge": ResumeRule.SAME_CONTENT,
    "signatures": ResumeRule.SAME_CONTENT,
    "timeout": ResumeRule.SAME,
    "preflight": ResumeRule.SAME,
    "wire": ResumeRule.SAME,
    "baseline": ResumeRule.SAME,
    # What is done with them, and which cells are asked for.
    "reports": ResumeRule.FREE,
    "history": ResumeRule.FREE,
    # A cell tells its attempts, and what kept it from running.
    "retries": ResumeRule.FREE,
    "retry-on": ResumeRule.FREE,
    "budget": ResumeRule.FREE,
    "quarantine": ResumeRule.FREE,
    "output": ResumeRule.FREE,
    "live": ResumeRule.FREE,
    "debug-rerun": ResumeRule.FREE,
    "controls": ResumeRule.FREE,
    "bisect": ResumeRule.FREE,
    "remedies": ResumeRule.FREE,
    "minimise": ResumeRule.FREE,
    "anonymise": ResumeRule.FREE,
    "cell": ResumeRule.FREE,
    "strategy": ResumeRule.FREE,
    "max-cells": ResumeRule.FREE,
    "plan": ResumeRule.FREE,
    "resume": ResumeRule.FREE,
}
"""By the option's name without `--hetgpu-`."""
