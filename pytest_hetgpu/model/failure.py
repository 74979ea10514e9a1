"""Failures: their signatures, and entries of known failures.

They are apart from `job.py` and `outcome.py`, so that reading a log alone does not import those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_hetgpu.model.verdict import Kind


@dataclass(frozen=True, slots=True)
class Signature:
    """Why a run failed, as one of the log's own lines says it.

    `key` holds no address, pid, host name or date: it is equal for equal bugs. `line` counts from 1.
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
    """One line of an expectation's `when`: a fact's name and what it must be (`<1.18`, or a plain word)."""

    fact: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is established about a failure, whatever run it is met in.

    `settings` are the `env` and `mca` that cure it, where it is settings; `status` says how well the cause is
    established: established (maintainers or documentation say so), reported (a workaround is confirmed), plausible.
    """

    id: str
    title: str
    cause: str
    fix: str = ""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    status: str = "established"
    fixed_in: str | None = None

    @property
    def url(self) -> str | None:
        """The link to read first."""
        return self.links[0] if self.links else None

    @property
    def typed(self) -> tuple[str, ...]:
        """Its settings as one types them: `UCX_TLS=tcp`, `--mca pml ucx`."""
        return tuple(
            f"--mca {name} {value}" if kind == "mca" else f"{name}={value}"
            for kind, values in self.settings.items()
            for name, value in values.items()
        )
