"""Conditions: `ucx: "<1.18"`, `openmpi: ">=5,<6"`, `capability: no-large-bar`, `fabric: tcp|efa`, `large_bar: not yes`.

A fact has one value, or several: those of nodes that differ, or a wider and a narrower name of one thing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping

from pytest_hetgpu.model.failure import Condition

KnownFacts = Mapping[str, str | Collection[str]]
"""Facts by name. A fact that is missing is unknown; one without a value is known to be absent."""

_OPERATORS = ("<", ">", "=", "!", "~")
_NOT = "not "


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


def needs_proof(condition: Condition) -> bool:
    """Return whether a condition holds only if its fact is known; `not VALUE` holds until the fact contradicts it."""
    return not condition.wanted.startswith(_NOT)


def matches(condition: Condition, facts: KnownFacts, capabilities: Collection[str] | None) -> bool | None:
    """Return whether a condition matches; None if its fact is not known, or no capabilities are.

    Any value of a fact that matches is enough. `not VALUE` is False if all values match.
    """
    if condition.fact == "capability":
        return None if capabilities is None else condition.wanted in capabilities
    fact = facts.get(condition.fact)
    if fact is None:
        return None
    values = (fact,) if isinstance(fact, str) else tuple(fact)
    wanted = condition.wanted.removeprefix(_NOT)
    held = [_holds(wanted, value) for value in values]
    if condition.wanted.startswith(_NOT):
        return not (held and all(held))
    return True if True in held else None if None in held else False


def _holds(wanted: str, value: str) -> bool | None:
    """Return whether a value matches one of the globs, or the version range; None if it is no version."""
    if not wanted.startswith(_OPERATORS):
        return any(fnmatch.fnmatchcase(value, glob) for glob in wanted.split("|"))
    # This import takes as long as reading a small log.
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(wanted, prereleases=True).contains(Version(value))
    except InvalidVersion:
        return None


_MEANINGS = {
    "memory": {
        "device": "its buffers are in GPU memory",
        "cuda": "its buffers are in memory of an NVIDIA GPU",
        "rocm": "its buffers are in memory of an AMD GPU",
    },
    "platform": {
        "cuda": "its ranks run on NVIDIA GPUs",
        "rocm": "its ranks run on AMD GPUs",
        "mixed": "NVIDIA and AMD GPUs are in one job",
    },
    "large_bar": {"no": "a GPU has no Large BAR, as `hetgpu doctor` or `lspci -vv` shows"},
    "fabric": {"slingshot": "the network is Slingshot", "efa": "the network is EFA"},
    "program": {"torch": "the program uses PyTorch"},
    "launcher": {"srun": "the ranks were started by srun"},
}


def describe_proof(condition: Condition) -> str:
    """Describe what would prove a condition: `its buffers are in GPU memory (memory: device)`, `ucx: >=1.18`."""
    meaning = _MEANINGS.get(condition.fact, {}).get(condition.wanted)
    shown = f"{condition.fact}: {condition.wanted}"
    return f"{meaning} ({shown})" if meaning else shown
