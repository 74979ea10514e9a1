"""The options of one process's part of a run, as the session resolved them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_hetgpu.execution.budget import UNLIMITED, Budget
from pytest_hetgpu.execution.output_limit import LIMIT
from pytest_hetgpu.execution.retry.policy import NO_RETRIES, Retries
from pytest_hetgpu.execution.retry.quarantine import LIMIT as QUARANTINE

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.baseline import Baseline
    from pytest_hetgpu.store.history_place import HistoryPlace


@dataclass(frozen=True)
class RunOptions:
    """The settings that the run of a cell depends on. They do not change during the run."""

    #: `warn`, `strict` or `off`.
    preflight: str = "warn"
    #: Seconds of each measurement of the link between nodes; None: no measurement.
    link_seconds: float | None = None
    retries: Retries = NO_RETRIES
    budget: Budget = UNLIMITED
    #: Failures in a row after which a node is quarantined; None: never.
    quarantine: int | None = QUARANTINE
    #: Bytes of a cell's output that are kept.
    output_limit: float = LIMIT
    debug_rerun: bool = False
    #: Whether reports have stand-ins for names of hosts, users and folders.
    anonymise: bool = False
    #: Earlier runs that measured times are compared with.
    baseline: Baseline | None = None
    #: File or database that the numbers of this run are added to; None: no history.
    history: HistoryPlace | None = None
    #: Command-line options, besides the matrix, that run a cell the same way again.
    typed: tuple[str, ...] = ()


DEFAULTS = RunOptions()
