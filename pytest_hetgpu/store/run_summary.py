"""A run as history and `hetgpu compare` store it: the outcome of each cell, and its numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.records import Measurement
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.environment import SUMMARY_FACTS, PlacementFacts, read_all
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.properties import FLAKY_PREFIX, describe_flaky
from pytest_hetgpu.store.text import one_line

# Benchmarks: Python programs, OSU's, nccl-tests and rccl-tests, Intel's.
_PROGRAM = re.compile(r"\w+\.py|osu_\w+|\w+_perf|IMB-\w+")
# Our wrapper of external programs; the second name is that of earlier versions.
_WRAPPERS = ("run_external.py", "foreign.py")
_LONGEST_NAME = 1000
_FURTHER_FACTS = ("glibc", "python", "rocm.driver", "cuda.version", "craympich")
"""Facts of nodes that explain a change, besides those of the summary."""


@dataclass(frozen=True, slots=True)
class CellSummary:
    """The outcome of a cell, and its measurements."""

    matrix: str
    scenario: str
    kind: Kind
    verdict: Verdict
    axes: Mapping[str, str] = field(default_factory=dict)
    signature: str = ""
    why: str = ""
    #: the link given for the failure, or for the absence of the cell
    issue: str = ""
    seconds: float = 0.0
    stack: str = ""
    transports: tuple[str, ...] = ()
    #: versions and settings
    facts: Mapping[str, str] = field(default_factory=dict)
    #: the benchmark program; "" if unknown
    tool: str = ""
    #: facts of its nodes: hosts, kernel, drivers; several values joined by ` | `
    nodes: Mapping[str, str] = field(default_factory=dict)
    #: 0 ranks if unknown
    measurements: tuple[Measurement, ...] = ()

    @property
    def flaky(self) -> str:
        """How the cell failed before it passed: `passed at attempt 2, after network failure`; "" if it is not flaky."""
        return self.why if self.kind is Kind.PASSED and self.why.startswith(FLAKY_PREFIX) else ""

    @property
    def memory(self) -> str:
        """The place of the data: `host`, `guarded`."""
        return self.facts.get("memory", "")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as history stores it."""

    id: str
    folder: str
    #: seconds since 1970
    started: float
    #: the host of pytest
    machine: str
    #: our version
    package: str
    matrices: tuple[MatrixFile, ...]
    cells: tuple[CellSummary, ...]
    #: the place of the machine, if runs of several places were merged
    site: str = ""
    #: the inputs of the verdicts, by name: digests of files, images, versions, options
    basis: Mapping[str, str] = field(default_factory=dict)


def summarise(record: RunRecord, folder: Path) -> RunSummary:
    """Summarise the record of a run; `folder` is its present place."""
    folder = folder.resolve()
    sessions = record.sessions
    nodes = {one.name: _node_facts(one) for one in read_all(folder)}
    return RunSummary(
        id=run_id(record, folder),
        folder=str(folder),
        started=run_start(record),
        machine=one_line(sessions[-1].host, _LONGEST_NAME) if sessions else "",
        package=one_line(sessions[-1].package, _LONGEST_NAME) if sessions else "",
        matrices=tuple({matrix.name: matrix for session in sessions for matrix in session.matrices}.values()),
        cells=tuple(_summarise_cell(cell, nodes.get(_placement(cell), {})) for cell in record.cells),
        basis={
            name: one_line(value, _LONGEST_NAME) for name, value in (sessions[-1].basis if sessions else {}).items()
        },
    )


def run_id(record: RunRecord, folder: Path) -> str:
    """Return the name that the folder of a run had when it was created; `folder` is its present place."""
    named = (session.id for session in record.sessions if session.id)
    return one_line(next(named, folder.resolve().name), _LONGEST_NAME)


def run_start(record: RunRecord) -> float:
    """Return the start of a run in seconds since 1970, 0 if it is unknown."""
    # The first session is the earliest, even if the clock was set back later.
    begun = [session.started for session in record.sessions[:1]] or [one.started for one in record.cells if one.started]
    return min(filter(math.isfinite, begun), default=0.0)


def _placement(cell: CellRecord) -> str:
    return f"{cell.matrix}-{cell.axes.get('placement', '')}"


def _node_facts(placement: PlacementFacts) -> dict[str, str]:
    """Return the hosts of a placement and the versions on them; several values are joined."""
    nodes = placement.nodes.values()
    found = {"hosts": [node.host for node in nodes]}
    for name in (*SUMMARY_FACTS, *_FURTHER_FACTS):
        found[name] = [fact.text for node in nodes if (fact := node.environment.facts.get(name)) and fact.text]
    return {
        name: one_line(" | ".join(dict.fromkeys(values)), _LONGEST_NAME) for name, values in found.items() if values
    }


def _summarise_cell(record: CellRecord, nodes: Mapping[str, str]) -> CellSummary:
    outcome = record.outcome
    return CellSummary(
        matrix=record.matrix,
        scenario=record.scenario,
        kind=outcome.kind,
        verdict=outcome.verdict,
        axes=record.axes,
        signature=one_line(outcome.signature.key, _LONGEST_NAME) if outcome.signature else "",
        why=one_line(describe_flaky(outcome) or outcome.why, _LONGEST_NAME),
        issue=one_line(record.issue or "", _LONGEST_NAME),
        seconds=outcome.seconds,
        stack=one_line(outcome.stack, _LONGEST_NAME),
        transports=outcome.transports,
        facts={**outcome.facts, **_link_fact(outcome)},
        tool=outcome.facts.get("tool") or benchmark_program(record.result.argv if record.result else record.argv),
        nodes={name: value for name, value in nodes.items() if name not in outcome.facts},
        measurements=outcome.measurements,
    )


def _link_fact(outcome: Outcome) -> dict[str, str]:
    """Return the bandwidth between the nodes in two digits: further ones differ from run to run."""
    link = outcome.wire
    return {"wire": one_line(f"{link.gbs:.2g} GB/s ({link.source})", _LONGEST_NAME)} if link and link.gbs else {}


def benchmark_program(argv: Sequence[str]) -> str:
    """Find the program that measures in a command line: `allreduce.py`, `osu_latency`; "" if none is recognised."""
    names = (token.rpartition("/")[2] for token in argv if "=" not in token)
    return next((name for name in names if _PROGRAM.fullmatch(name) and name not in _WRAPPERS), "")
