"""Conditions of an expectation: `ucx: "<1.18"`, `openmpi: ">=5,<6"`, `capability: no-large-bar`."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping

from pytest_hetgpu.model.failure import Condition

_OPERATORS = ("<", ">", "=", "!", "~")


def check_condition(wanted: str) -> str | None:
    """Return the error in the right side of a condition, None if it is valid."""
    if not wanted.startswith(_OPERATORS):
        return None
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(wanted)
    except InvalidSpecifier:
        return f"{wanted!r} is not a version range (like '<1.18' or '>=5,<6')"
    return None


def matches(condition: Condition, facts: Mapping[str, str], capabilities: Collection[str]) -> bool | None:
    """Return whether a condition matches; None if its fact is not known."""
    if condition.fact == "capability":
        return condition.wanted in capabilities
    fact = facts.get(condition.fact)
    if fact is None:
        return None
    if not condition.wanted.startswith(_OPERATORS):
        return fnmatch.fnmatchcase(fact, condition.wanted)
    # This import takes as long as reading a small log.
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(condition.wanted, prereleases=True).contains(Version(fact))
    except InvalidVersion:
        return None
