"""Who may read and write what a run leaves, whatever the umask: what holds environments and logs, its owner alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.cluster.stack_dump import record
from pytest_hetgpu.execution.execute import execute, not_started
from pytest_hetgpu.extensions.runtimes.base import TimeoutInfo
from pytest_hetgpu.extensions.runtimes.fake import FakeRuntime
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.reporting.upstream.bundle import write_bundle
from pytest_hetgpu.store import environment, history
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.files import write_atomically
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.redaction import anonymity
from pytest_hetgpu.store.run_summary import summarise
from tests.analysis.judges.judge_cases import job as whole_job
from tests.reporting.report_samples import CRASHED, KEY, job

PRIVATE = {"output.log", "job.json", "stacks.json", "environment.json", "main.jsonl"}
REPORTS = {"junit.xml", "summary.md", "index.html"}


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def everything(reports: Path) -> RunFolder:
    """A run that leaves each kind of file there is."""
    folder = RunFolder.create(reports / "new" / "reports")
    made, runtime = whole_job(), FakeRuntime(lambda _: (1, b"a line\n"))
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        journal.planned(made)
        cluster = Cluster(made, tuple(ClusterNode(node, runtime) for node in made.nodes))
        execute(cluster, folder, journal)
        execute(cluster, folder.for_attempt("debug"), None)
        journal.judged(made, CRASHED)
        other = job("mixed-ucx-never")
        journal.planned(other)
        journal.finished(other, not_started(other, folder.prepare(other.label), ["hetgpu: not ready: x"]))
        journal.judged(other, CRASHED)
    record(TimeoutInfo(1.0, 1.0, lambda *_: b"{}"), {}, folder.log(made.label), 2)
    environment.write(folder.path, environment.PlacementFacts("p", {}))
    anonymity.mark_anonymous(folder.path)
    past_run = summarise(build(folder.path, "again"), folder.path)
    assert history.put(folder.history, past_run) == ""
    write_bundle(folder.path, KEY, folder.path / "bundle.tar.gz")
    return folder


def test_only_its_owner_writes_to_a_run_and_reads_what_is_raw(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path / "leases"))
    folder = everything(tmp_path)
    found = sorted((tmp_path / "new").rglob("*"))
    assert {path.name for path in found} >= {*PRIVATE, *REPORTS, "history.sqlite", "bundle.tar.gz", "debug", "issues"}
    assert [path for path in found if mode(path) & 0o022 and not path.is_symlink()] == []
    assert {path: oct(mode(path)) for path in found if path.name in PRIVATE and mode(path) != 0o600} == {}
    shown = {path.name: mode(path) for path in folder.path.iterdir() if path.name in REPORTS}
    assert shown == dict.fromkeys(REPORTS, 0o644 & ~umask)
    assert mode(folder.path) == 0o755 & ~umask


def test_a_link_that_somebody_laid_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f".junit.xml.{os.getpid()}.tmp").symlink_to(victim)
    (tmp_path / "junit.xml").symlink_to(victim)
    write_atomically(tmp_path / "junit.xml", b"report")
    assert victim.read_text() == "mine"
    assert (tmp_path / "junit.xml").read_bytes() == b"report"
    assert not (tmp_path / "junit.xml").is_symlink()
