"""The run that is taken up again: which one, and why not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pytest_hetgpu.errors import StorageError, UsageError
from pytest_hetgpu.execution.resume.previous_run import find_run, resume, reusable_before
from pytest_hetgpu.store.cells import CellState
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, PASSED, job, result

BASIS = {"pytest-hetgpu": "1", "matrix aws": "sha256 " + "0" * 64}


def run(reports: Path, basis: dict[str, str] | None = None) -> Path:
    """A run with a cell that passed and one in flight."""
    folder = RunFolder.create(reports).path
    with closing(Journal(folder, "main", sole=True)) as journal:
        journal.session_started([], ["pytest"], basis=BASIS if basis is None else basis)
        journal.planned(job())
        journal.started(job())
        journal.finished(job(), result())
        journal.judged(job(), PASSED)
        journal.started(job("a-b-flight"))
    return folder


def test_it_is_found_by_id_by_folder_and_as_the_latest(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    first, second = run(reports), run(reports)
    assert find_run("latest", reports, tmp_path) == second
    assert find_run(first.name, reports, tmp_path) == first
    assert find_run(f"reports/{first.name}", Path("elsewhere"), tmp_path) == first
    assert find_run(str(first), Path("elsewhere"), tmp_path / "x") == first
    (reports / "latest").unlink()
    (reports / "latest.txt").write_text(f"{first.name}\n")
    assert find_run("latest", reports, tmp_path) == first


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    with pytest.raises(UsageError, match=r"there is no run in .*reports to resume; start one without"):
        find_run("latest", reports, tmp_path)
    there = run(reports)
    with pytest.raises(UsageError, match=rf"no run 'x' to resume.*known: {there.name}"):
        find_run("x", reports, tmp_path)
    (tmp_path / "test_x.py").touch()
    with pytest.raises(UsageError, match=r"took 'test_x.py' for a run; write --hetgpu-resume=latest"):
        find_run("test_x.py", reports, tmp_path)


def test_the_next_part_keeps_what_was_judged(tmp_path: Path) -> None:
    folder = run(tmp_path)
    for part in (1, 2):
        earlier = resume(folder, BASIS)
        with closing(earlier.journal) as journal:
            assert [cell.label for cell in earlier.reusable.values()] == [job().label]
            assert journal.part == part
            journal.session_started([], ["pytest"], basis=BASIS)
            journal.judged(job("a-b-other"), CRASHED) if part == 2 else None
        assert [cell.label for cell in reusable_before(folder, part).values()] == [job().label]
    assert reusable_before(folder, 0) == {}


def test_what_changed_is_listed_and_nothing_written(tmp_path: Path) -> None:
    folder = run(tmp_path)
    before = (folder / "journal" / "main.jsonl").read_bytes()
    with pytest.raises(UsageError) as caught:
        resume(folder, {**BASIS, "matrix aws": "sha256 " + "1" * 64, "variable UCX_TLS": "tcp"})
    assert str(caught.value).splitlines() == [
        f"{folder} cannot be resumed, what its verdicts rest on has changed:",
        "  matrix aws: was sha256 000000000000, is sha256 111111111111",
        "  variable UCX_TLS: was not there, is tcp",
        "put that back, or start a new run without --hetgpu-resume",
    ]
    assert (folder / "journal" / "main.jsonl").read_bytes() == before
    resume(folder, BASIS).journal.close()


def test_a_run_that_lives_is_refused_with_its_process(tmp_path: Path) -> None:
    folder = run(tmp_path)
    journal = resume(folder, BASIS).journal
    journal.session_started([], ["pytest"], basis=BASIS)
    with pytest.raises(UsageError, match=rf"process {os.getpid()} on \S+ is still running it"):
        resume(folder, BASIS)
    journal.close()
    resume(folder, BASIS).journal.close()


HOLDS = """
import sys
from pathlib import Path
from pytest_hetgpu.store.journal import Journal
journal = Journal(Path(sys.argv[1]), "gw0")
print("here", flush=True)
sys.stdin.read()
"""


def test_a_worker_that_still_ends_is_waited_for(tmp_path: Path) -> None:
    folder = run(tmp_path)
    command = [sys.executable, "-c", HOLDS, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"here\n"
        assert worker.stdin is not None
        worker.stdin.close()
        resume(folder, BASIS).journal.close()


def test_another_versions_journal_is_refused(tmp_path: Path) -> None:
    folder = run(tmp_path)
    with (folder / "journal" / "main.jsonl").open("a") as file:
        file.write(json.dumps({"schema": 2, "event": "judged", "epoch": 1}) + "\n")
    with pytest.raises(UsageError, match=r"1 line of its journal are? of a newer version .*reads schema 1"):
        resume(folder, BASIS)


def test_a_journal_of_before_there_was_resume_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did not keep what its verdicts rest on; `hetgpu report` builds"):
        resume(run(tmp_path, {}), BASIS)


def test_a_journal_without_its_beginning_is_refused(tmp_path: Path) -> None:
    folder = run(tmp_path)
    (folder / "journal" / "main.jsonl").write_bytes(b"")
    with pytest.raises(UsageError, match="its journal does not record how it was started"):
        resume(folder, BASIS)


@pytest.mark.parametrize("cut", [1, 40, 80])
def test_a_journal_cut_in_mid_line_costs_that_line(tmp_path: Path, cut: int) -> None:
    folder = run(tmp_path)
    path = folder / "journal" / "main.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    with closing(resume(folder, BASIS).journal) as journal:
        journal.session_started([], ["pytest"], basis=BASIS)
    earlier = resume(folder, BASIS)
    earlier.journal.close()
    assert len(earlier.record.sessions) == 2
    assert [cell.state for cell in earlier.reusable.values()] == [CellState.JUDGED]


def test_a_folder_that_takes_nothing_is_said(tmp_path: Path) -> None:
    folder = run(tmp_path)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    bind = ("mount", "--bind", "-o", "ro", str(folder), str(mounted))
    if os.geteuid() or subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount")
    try:
        with pytest.raises(StorageError, match=r"main\.jsonl: cannot be opened \(Read-only file system\)"):
            resume(mounted, BASIS)
    finally:
        subprocess.run(("umount", str(mounted)), check=True)
