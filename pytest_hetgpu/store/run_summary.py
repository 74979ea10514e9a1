"""A run as history and `hetgpu compare` know it: what became of each cell, and its numbers."""

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
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.properties import SHAKY, flaky
from pytest_hetgpu.store.text import one_line

# Programs that measure: ours and other Python ones, OSU's, those of nccl-tests and rccl-tests, Intel's.
_PROGRAM = re.compile(r"\w+\.py|osu_\w+|\w+_perf|IMB-\w+")
_STARTER = "foreign.py"  # of ours, which becomes the program that measures
_NAMES = 1000


@dataclass(frozen=True, slots=True)
class PastCell:
    """What became of a cell, and what it measured.

    `facts` are versions and settings; `tool` is the program that measured. What is not known is empty, a measurement's
    number of ranks then 0.
    """

    matrix: str
    scenario: str
    kind: Kind
    verdict: Verdict
    axes: Mapping[str, str] = field(default_factory=dict)
    signature: str = ""
    why: str = ""
    seconds: float = 0.0
    stack: str = ""
    transports: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    measurements: tuple[Measurement, ...] = ()

    @property
    def flaky(self) -> str:
        """How it had failed before it passed: `passed at attempt 2, after network failure`; "" where it did not."""
        return self.why if self.kind is Kind.PASSED and self.why.startswith(SHAKY) else ""

    @property
    def memory(self) -> str:
        """Where the data was: `host`, `guarded`."""
        return self.facts.get("memory", "")


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run: `started` in seconds since 1970, the `machine` that pytest ran on, our version as `package`."""

    id: str
    folder: str
    started: float
    machine: str
    package: str
    matrices: tuple[MatrixFile, ...]
    cells: tuple[PastCell, ...]


def past(record: RunRecord, folder: Path) -> PastRun:
    """What a journal tells, as far as it is worth keeping. `folder` is where the run is now."""
    folder = folder.resolve()
    sessions = record.sessions
    # The first session is the first, whatever clocks said since.
    begun = [session.started for session in sessions[:1]] or [cell.started for cell in record.cells if cell.started]
    return PastRun(
        id=one_line(next((session.id for session in sessions if session.id), folder.name), _NAMES),
        folder=str(folder),
        started=min(filter(math.isfinite, begun), default=0.0),
        machine=one_line(sessions[-1].host, _NAMES) if sessions else "",
        package=one_line(sessions[-1].package, _NAMES) if sessions else "",
        matrices=tuple({matrix.name: matrix for session in sessions for matrix in session.matrices}.values()),
        cells=tuple(map(_cell, record.cells)),
    )


def _cell(record: CellRecord) -> PastCell:
    outcome = record.outcome
    return PastCell(
        matrix=record.matrix,
        scenario=record.scenario,
        kind=outcome.kind,
        verdict=outcome.verdict,
        axes=record.axes,
        signature=one_line(outcome.signature.key, _NAMES) if outcome.signature else "",
        why=one_line(flaky(outcome) or outcome.why, _NAMES),
        seconds=outcome.seconds,
        stack=one_line(outcome.stack, _NAMES),
        transports=outcome.transports,
        facts={**outcome.facts, **_wire(outcome)},
        tool=outcome.facts.get("tool") or program(record.result.argv if record.result else record.argv),
        measurements=outcome.measurements,
    )


def _wire(outcome: Outcome) -> dict[str, str]:
    """What the way between the nodes could carry, in two digits: further ones differ from run to run."""
    wire = outcome.wire
    return {"wire": one_line(f"{wire.gbs:.2g} GB/s ({wire.source})", _NAMES)} if wire and wire.gbs else {}


def program(argv: Sequence[str]) -> str:
    """The program that measures in a command line: `allreduce.py`, `osu_latency`; "" where none is recognised."""
    names = (token.rpartition("/")[2] for token in argv if "=" not in token)
    return next((name for name in names if _PROGRAM.fullmatch(name) and name != _STARTER), "")
