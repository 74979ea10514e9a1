"""The options that a resumed run must repeat. A new option needs an entry here."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Rule(str, enum.Enum):
    """The rule for an option of a resumed run: the `SAME` value, files with the `SAME_CONTENT`, or `FREE`."""

    SAME = "the same value"
    SAME_CONTENT = "files that hold the same"
    FREE = "anything"


RULES: Mapping[str, Rule] = {
    # What verdicts are made of.
    "matrix": Rule.SAME_CONTENT,
    "inventory": Rule.SAME_CONTENT,
    "knowledge": Rule.SAME_CONTENT,
    "timeout": Rule.SAME,
    "preflight": Rule.SAME,
    "wire": Rule.SAME,
    "baseline": Rule.SAME,
    # What is done with them, and which cells are asked for.
    "reports": Rule.FREE,
    "history": Rule.FREE,
    # A cell tells its attempts, and what kept it from running.
    "retries": Rule.FREE,
    "retry-on": Rule.FREE,
    "budget": Rule.FREE,
    "quarantine": Rule.FREE,
    "output": Rule.FREE,
    "live": Rule.FREE,
    "debug-rerun": Rule.FREE,
    "anonymise": Rule.FREE,
    "cell": Rule.FREE,
    "plan": Rule.FREE,
    "resume": Rule.FREE,
}
"""By the option's name without `--hetgpu-`."""
