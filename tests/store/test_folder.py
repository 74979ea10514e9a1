"""The places of a run's files, and the errors for wrong places."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.outcome import RunResult
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.files import write_atomically
from pytest_hetgpu.store.folder import RunFolder, read_job, read_result
from tests.reporting.report_samples import job, result


def test_a_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    reports = tmp_path / "new" / "reports"
    runs = [RunFolder.create(reports) for _ in range(20)]
    assert len({run.path for run in runs}) == 20
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", run.path.name) for run in runs)
    assert all((run.path / "journal").is_dir() for run in runs)


def test_a_name_that_is_taken_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda _: "20261120-140000")
    first = RunFolder.create(tmp_path)
    drawn = iter([first.path.name[-4:], first.path.name[-4:], "beef"])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(drawn))
    assert RunFolder.create(tmp_path).path.name == "20261120-140000-beef"


def test_latest_is_the_newest_run(tmp_path: Path) -> None:
    for _ in range(2):
        run = RunFolder.create(tmp_path)
        assert (tmp_path / "latest").resolve() == run.path
        assert str((tmp_path / "latest").readlink()) == run.path.name
    assert {path.name for path in tmp_path.iterdir()} == {"latest", *(path.name for path in tmp_path.glob("2*"))}


def test_where_no_link_can_be_made_a_file_says_which_is_latest(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "mine").touch()
    run = RunFolder.create(tmp_path)
    assert (tmp_path / "latest.txt").read_text() == f"{run.path.name}\n"
    assert (tmp_path / "latest" / "mine").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("inside", ["", "below", "below/that"])
def test_a_file_in_the_way_is_named(tmp_path: Path, inside: str) -> None:
    (tmp_path / "reports").write_text("not a folder")
    reports = tmp_path / "reports" / inside
    with pytest.raises(UsageError, match=rf"^reports folder {reports}: not a directory \(.*reports.* is in the way\)$"):
        RunFolder.create(reports)


@pytest.mark.parametrize("place", ["/proc/reports", "/sys/reports"])
def test_a_folder_that_cannot_be_written_is_named(place: str) -> None:
    """Use folders that refuse even root."""
    with pytest.raises(UsageError, match=rf"^reports folder {place}: not writable \([A-Z][a-z ]+\)$"):
        RunFolder.create(Path(place))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(UsageError, match=rf"^reports folder {tmp_path}: not writable \(Permission denied\)$"):
        RunFolder.create(tmp_path)


def test_a_passed_cell_keeps_two_files(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    run.prepare(job().label).write_text("output\n")
    run.write_job(job())
    run.write_job(job(), result())
    assert {path.name for path in run.scenario(job().label).iterdir()} == {"output.log", "job.json"}
    assert run.log(job().label).read_text() == "output\n"


@pytest.mark.parametrize("label", ["", ".", "..", "../x", "a/b", "/etc", "a\0b", "\ud800", "[x]|", "x" * 5000])
def test_a_cell_stays_in_its_folder(tmp_path: Path, label: str) -> None:
    log = RunFolder(tmp_path).prepare(label)
    log.touch()
    assert log.resolve().relative_to(tmp_path / "scenarios").parts[1:] == ("output.log",)


def test_a_job_is_read_back_as_it_was(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_job(job())
    path = run.job(job().label)
    assert (read_job(path), read_result(path)) == (job(), None)
    run.write_job(job(), result(returncode=-11))
    assert (read_job(path), read_result(path)) == (job(), result(returncode=-11))


def test_a_kept_job_holds_no_secret(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    command = Command(("env", "HF_TOKEN=s3cr3t word", "prog"), {"API_KEY": "s3cr3t", "UCX_TLS": "tcp"})
    node = job().nodes[0]
    nodes = (replace(node, hardware=replace(node.hardware, env={"MY_SECRET": "s3cr3t"})),)
    made = job(command=command, nodes=nodes)
    run.write_job(made, RunResult(command.argv, 0, "output.log", 1.0, 1.0))
    assert "s3cr3t" not in run.job(made.label).read_text()
    kept = read_job(run.job(made.label))
    assert kept.command.env == {"API_KEY": "[redacted]", "UCX_TLS": "tcp"}
    assert kept.demand == made.demand


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("\x00", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no schema number"),
        ('{"job": {}}', "no schema number"),
        ('{"schema": 2}', r"newer version \(schema 2, known: 1\)"),
        ('{"schema": 1, "job": {"matrix": 3}}', r"Job\.matrix: wanted text, found 3"),
        ('{"schema": 1}', "Job: wanted an object, found None"),
    ],
    ids=range(8),
)
def test_a_job_that_cannot_be_read_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=f"{path}: .*{complaint}") as error:
        read_job(path)
    assert str(error.value).count(str(path)) == 1


def test_a_result_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"schema": 1, "result": {"argv": "x"}}))
    with pytest.raises(RecordError, match=rf"{path}: RunResult\.argv: wanted a list"):
        read_result(path)
    with pytest.raises(RecordError, match=rf"{path / 'none'}: Not a directory"):
        read_job(path / "none")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder", b"x")
    assert path.read_bytes() == b"second"
    assert {found.name for found in tmp_path.iterdir()} == {"junit.xml", "folder"}
