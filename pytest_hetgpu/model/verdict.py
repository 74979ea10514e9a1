"""Kinds of outcome, and verdicts against the expectation."""

from __future__ import annotations

import enum


class Kind(str, enum.Enum):
    """The kind of an outcome, worst last. The worst of several findings is the outcome."""

    PASSED = "passed"
    SKIPPED = "skipped"
    SLOW = "slow"
    NETWORK_FAILURE = "network_failure"
    TIMEOUT = "timeout"
    HANG = "hang"
    TRANSPORT_UNAVAILABLE = "transport_unavailable"
    MISSING_LIBRARY = "missing_library"
    GPU_ARCH_MISMATCH = "gpu_arch_mismatch"
    LAUNCH_FAILURE = "launch_failure"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
    CRASH = "crash"
    ERROR = "error"
    UNKNOWN = "unknown"

    @property
    def severity(self) -> int:
        """Return the position in the list above; larger is worse."""
        return _SEVERITY[self]

    @property
    def failed(self) -> bool:
        """Return whether a cell ran and did not do its job."""
        return self not in (Kind.PASSED, Kind.SLOW, Kind.SKIPPED)


_SEVERITY = {kind: place for place, kind in enumerate(Kind)}


class Verdict(str, enum.Enum):
    """The comparison of a kind with the scenario's expectation."""

    OK = "ok"
    KNOWN = "known"
    NEW = "new"
    CHANGED = "changed"
    FIXED = "fixed"
    NOT_RUN = "not_run"

    @property
    def fails(self) -> bool:
        """Return whether a run with such a scenario exits with 1."""
        return self in (Verdict.NEW, Verdict.CHANGED, Verdict.FIXED)
