"""With what a stored run is judged again: the options of its sessions, told or typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pytest_hetgpu.errors import KnowledgeError, UsageError
from pytest_hetgpu.rejudge import rejudge
from pytest_hetgpu.reporting.journal import Journal, MatrixFile

ENTRY = "- {id: mine, title: t, cause: c, match: {signature: a}}\n"


def run(tmp_path: Path, *argv: str, options: Sequence[str] = ()) -> Path:
    """A run's folder with one session and no cells."""
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    with closing(Journal(folder, "main")) as journal:
        journal.run([MatrixFile("demo", "demo.yaml", "0" * 64)], argv, options)
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


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run's folder"):
        list(rejudge(tmp_path))
