"""Failures: their signatures, and entries of known failures.

They are apart from `job.py` and `outcome.py`, so that reading a log alone does not import those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_hetgpu.model.verdict import Kind


@dataclass(frozen=True, slots=True)
class Signature:
    """The cause of a failed run, quoted from the log.

    `key` holds no address, pid, host name or date, so equal bugs have equal keys. `line` counts from 1.
    """

    kind: Kind
    key: str
    primary_line: str
    line: int
    signal: str | None = None
    detail: str | None = None
    library: str | None = None
    function: str | None = None
    entry_point: str | None = None
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of `when`: a fact's name and its required value (`<1.18`, a glob, `a|b`, `not a`)."""

    fact: str
    wanted: str


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A known cause of failures, independent of a run.

    Attributes:
        settings: the `env` and `mca` settings that fix it, if settings do.
        status: established (maintainers or documentation confirm it), reported (a workaround is confirmed), or
            plausible.
        unproven: what would prove that the cause fits this run; empty if it is proven, or needs no proof.

    """

    id: str
    title: str
    cause: str
    fix: str = ""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    status: str = "established"
    fixed_in: str | None = None
    unproven: tuple[str, ...] = ()

    @property
    def certainty(self) -> str:
        """Return `possible` if it is unproven in this run, else its status."""
        return "possible" if self.unproven else self.status

    @property
    def url(self) -> str | None:
        """Return the link to read first."""
        return self.links[0] if self.links else None

    @property
    def typed(self) -> tuple[str, ...]:
        """Return its settings as a user types them: `UCX_TLS=tcp`, `--mca pml ucx`."""
        return tuple(
            f"--mca {name} {value}" if kind == "mca" else f"{name}={value}"
            for kind, values in self.settings.items()
            for name, value in values.items()
        )
