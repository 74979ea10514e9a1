"""One process's part of a run: makes cells ready, runs, judges and journals them; the first process also reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_hetgpu import wording
from pytest_hetgpu.cluster import Cluster, provision
from pytest_hetgpu.evidence import Outcome, RunResult
from pytest_hetgpu.execute import execute
from pytest_hetgpu.judge import judge_output
from pytest_hetgpu.model import Job, Kind, Scenario, Verdict
from pytest_hetgpu.reporting.folder import RunFolder
from pytest_hetgpu.reporting.journal import Journal, matrix_file
from pytest_hetgpu.reporting.pairs import Pair, to_pairs
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.runtimes.base import Runtime
from pytest_hetgpu.suite import Suite


class Recorder:
    """Writes to one run's folder as `writer`; whatever it returns is on disk already."""

    def __init__(self, suite: Suite, folder: RunFolder, writer: str) -> None:
        self.suite = suite
        self.folder = folder
        self.journal = Journal(folder.path, writer)
        self.runtimes: dict[str, Runtime] = {}

    @classmethod
    def start(cls, suite: Suite, reports: Path, arguments: Sequence[str]) -> Recorder:
        """Opens a new run below the folder `reports`. UsageError where that cannot be written."""
        recorder = cls(suite, RunFolder.create(reports), "main")
        matrices = [matrix_file(document.name, Path(document.file)) for document in suite.documents.values()]
        recorder.journal.run(matrices, arguments)
        return recorder

    @classmethod
    def join(cls, suite: Suite, run: Path, writer: str) -> Recorder:
        """Takes part in a run that another process opened."""
        return cls(suite, RunFolder(run), writer)

    def skip(self, scenario: Scenario, reason: str, issue: str | None = None) -> list[Pair]:
        """Records that a cell is not run; gives what its test report is to hold."""
        self.journal.skipped(
            scenario, reason, issue=issue, position=self.suite.position(scenario.matrix, scenario.label)
        )
        outcome = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why=reason)
        return to_pairs(outcome, label=scenario.label, matrix=scenario.matrix)

    def provision(self, scenario: Scenario) -> Cluster:
        """The nodes of a cell. NotHere where one, or its stack, is missing."""
        return provision(self.suite.job(scenario), self.runtimes)

    def run(self, cluster: Cluster) -> tuple[RunResult, Outcome, list[Pair]]:
        """Executes and judges one cell; what judges read is on disk before they do."""
        job = cluster.job
        self.journal.planned(job, position=self.suite.position(job.matrix, job.label))
        result = execute(cluster, self.folder, self.journal)
        outcome = judge_output(job, result)
        self.journal.judged(job, outcome)
        return result, outcome, to_pairs(outcome, label=job.label, matrix=job.matrix)

    def describe(self, job: Job, outcome: Outcome) -> str:
        """The text of a failing test."""
        log = wording.shown(self.folder.log(job.label))
        return wording.describe(job, outcome, log, wording.again(self.suite, job.matrix, job.label))

    def report(self) -> None:
        """Builds junit.xml and summary.md from everything that was journalled."""
        build(self.folder.path, lambda matrix, label: wording.again(self.suite, matrix, label))
