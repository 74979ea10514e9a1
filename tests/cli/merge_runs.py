"""Runs of several sites for the tests of `hetgpu merge`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.model.facts import Environment, found
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.store import environment
from pytest_hetgpu.store.environment import NodeFacts, PlacementFacts
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, PASSED, job, run_cell

LABEL, OTHER = "mixed-ucx-allreduce", "mixed-ucx-send"


def made_run(
    reports: Path, outcomes: Sequence[Outcome] = (PASSED, CRASHED), *, digest: str = "0", options: Sequence[str] = ()
) -> Path:
    """A run of two cells of the matrix `aws`, with the facts of its nodes, in a reports folder of its own."""
    folder = RunFolder.create(reports)
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", digest * 64)], ["pytest"], options)
        for place, (label, outcome) in enumerate(zip((LABEL, OTHER), outcomes, strict=False)):
            journal.planned(job(label), place)
            run_cell(folder, journal, label, outcome)
    node = NodeFacts("g4ad", "10.0.0.1", Environment({"ucx": found("1.18.0")}))
    environment.write(folder.path, PlacementFacts("aws-mixed", {"node0": node}))
    return folder.path


def merged(*runs: str, output: str = "out") -> Path:
    assert main(["merge", *runs, "-o", output]) == 0
    return Path(output)


def two_sites(folder: Path) -> tuple[str, str]:
    """Two sites: the same matrix in two versions, and so the same cells."""
    made_run(folder / "amd")
    made_run(folder / "nv", (CRASHED, PASSED), digest="f", options=["--hetgpu-timeout", "60"])
    return "amd=amd/latest", "nv=nv/latest"
