"""The inputs of a second judgement: the options of the run's sessions, or typed ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pytest_hetgpu.cli.report import rejudge
from pytest_hetgpu.errors import KnowledgeError, UsageError
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.redaction.redact import clear_secrets
from tests.reporting.report_samples import job

ENTRY = "- {id: mine, title: t, cause: c, match: {signature: a}}\n"


def run(tmp_path: Path, *argv: str, options: Sequence[str] = ()) -> Path:
    """A run's folder with one session and no cells."""
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    with closing(Journal(folder, "main")) as journal:
        journal.session_started([MatrixFile("demo", "demo.yaml", "0" * 64)], argv, options)
    return folder


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        ((), ("--hetgpu-knowledge", "gone.yaml")),
        # A journal of an earlier version tells the command line alone.
        (("--hetgpu-knowledge", "gone.yaml"), ()),
        (("-x", "--hetgpu-knowledge=gone.yaml", "-q"), ()),
    ],
)
def test_a_file_that_is_gone_is_named_with_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: Sequence[str], options: Sequence[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = run(tmp_path, *argv, options=options)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    place = tmp_path / "gone.yaml"
    with pytest.raises(UsageError, match=re.escape("--knowledge FILE")) as caught:
        list(rejudge(folder))
    assert f"known failures in {place}, which is no file now" in str(caught.value)
    assert [path.name for path in (folder / "journal").iterdir()] == ["main.jsonl"]
    place.write_text(ENTRY)
    assert list(rejudge(folder)) == [f"0 verdicts changed; reports rebuilt in {folder}"]


def test_the_files_given_stand_for_the_runs_own(tmp_path: Path) -> None:
    folder = run(tmp_path, options=("--hetgpu-knowledge", "gone.yaml"))
    given = tmp_path / "given.yaml"
    with pytest.raises(KnowledgeError, match=r"given\.yaml: cannot be read"):
        list(rejudge(folder, [given]))
    given.write_text("[]")
    assert list(rejudge(folder, [given])) == [f"0 verdicts changed; reports rebuilt in {folder}"]


def test_own_rules_are_those_of_the_run_or_those_given(tmp_path: Path) -> None:
    folder = run(tmp_path, options=("--hetgpu-signatures", str(tmp_path / "gone.yaml")))
    with pytest.raises(UsageError, match=r"the rules in \S+gone\.yaml, which is no file now.*--signatures FILE"):
        list(rejudge(folder))
    given = tmp_path / "given.yaml"
    given.write_text("rules: {}")
    assert list(rejudge(folder, signatures=[given])) == [f"0 verdicts changed; reports rebuilt in {folder}"]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run's folder"):
        list(rejudge(tmp_path))


@pytest.fixture
def forgotten() -> Iterator[None]:
    yield
    clear_secrets()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("given", ["terraform:t.json", "hosts.yaml"])
def test_a_log_of_a_killed_run_is_redacted_by_what_its_inventory_calls_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    outputs = {"db": {"value": {"name": "leafvalue"}, "sensitive": True}, "n_ips": {"value": ["10.0.0.5"]}}
    (tmp_path / "t.json").write_text(json.dumps(outputs))
    # A source that is no file any more is not asked for again.
    (tmp_path / "hosts.yaml").write_text("from: [{terraform: t.json}, {terraform: '-'}, {slurm: }]\n")
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(run(tmp_path, "--hetgpu-inventory", given))
    with closing(Journal(folder.path, "gw0")) as journal:
        journal.started(job("a"))
    folder.start_log("a").write_text("it is leafvalue\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert list(rejudge(folder.path))
    assert folder.log("a").read_text() == "it is [redacted]\n"


def test_an_inventory_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    folder = RunFolder(run(tmp_path, "--hetgpu-inventory", "gone.yaml", "--hetgpu-inventory", "slurm:"))
    folder.start_log("a").write_text("clean\n")
    assert list(rejudge(folder.path)) == [f"0 verdicts changed; reports rebuilt in {folder.path}"]
