"""A journal whose folder is renamed or deleted while it is written."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from pytest_hetgpu.reporting import rescue
from pytest_hetgpu.reporting.cells import read_run
from pytest_hetgpu.reporting.folder import RunFolder
from pytest_hetgpu.reporting.journal import Journal
from pytest_hetgpu.reporting.rescue import FolderLost


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return RunFolder.create(tmp_path / "home" / "reports").path


def journal_in(run: Path, writer: str = "main") -> Journal:
    journal = Journal(run, writer)
    if writer == "main":
        journal.run([], ["pytest"])
    return journal


def test_a_folder_that_stays_is_not_lost(run: Path) -> None:
    journal = journal_in(run)
    journal.check()
    assert journal.lost == ""


def test_it_goes_on_in_a_renamed_folder(run: Path, tmp_path: Path) -> None:
    journal = journal_in(run)
    there = tmp_path / "else where"
    run.rename(there)
    with pytest.raises(FolderLost, match=f"was renamed .* in {there} now: `hetgpu report '{there}'`"):
        journal.run([], ["lost"])
    journal.run([], ["later"])
    journal.close()
    assert journal.folder == there
    assert [tuple(one.argv) for one in read_run(there).sessions] == [("pytest",), ("later",)]
    assert not run.exists()
    assert not list(there.glob("journal/.*"))


def test_latest_follows_within_the_folder_of_reports(run: Path) -> None:
    journal = journal_in(run)
    run.rename(run.with_name("mine"))
    with pytest.raises(FolderLost):
        journal.check()
    assert (run.parent / "latest").readlink() == Path("mine")


@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_deleted_journal_is_copied_beside_it(run: Path, above: int) -> None:
    writers = [journal_in(run), journal_in(run, "gw0"), journal_in(run, "gw1")]
    shutil.rmtree((run, *run.parents)[above])
    for journal in writers:
        with pytest.raises(FolderLost, match="was deleted while cells ran"):
            journal.check()
        journal.check()
        journal.run([], [journal.path.stem])
        journal.close()
    (saved,) = {journal.folder for journal in writers}
    assert saved == run.parents[above] / f"{run.name}.rescued"
    assert sorted(path.name for path in saved.glob("journal/*")) == ["gw0.jsonl", "gw1.jsonl", "main.jsonl"]
    assert {path.stat().st_mode & 0o777 for path in saved.glob("journal/*")} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (saved, saved / "journal")} == {0o700}
    assert (saved / "journal" / "main.jsonl").read_bytes().count(b"\n") == 2


def test_a_link_in_the_way_is_not_followed(run: Path, tmp_path: Path) -> None:
    journal = journal_in(run)
    run.with_name(f"{run.name}.rescued").symlink_to(tmp_path)
    shutil.rmtree(run)
    with pytest.raises(FolderLost):
        journal.check()
    assert journal.folder == run.parents[1] / f"{run.name}.rescued"


def test_another_run_at_the_same_place_is_not_ours(run: Path, tmp_path: Path) -> None:
    journal = journal_in(run)
    run.rename(tmp_path / "aside")
    journal_in(run).run([], ["other"])
    with pytest.raises(FolderLost, match="was renamed"):
        journal.check()
    assert journal.folder == tmp_path / "aside"


def test_equal_contents_are_the_same_journal_whatever_its_number(run: Path) -> None:
    journal = journal_in(run)
    copy = run / "copy"
    shutil.copyfile(journal.path, copy)
    copy.replace(journal.path)
    journal.check()
    assert journal.lost == ""


def test_nowhere_to_copy_it_to(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = journal_in(run)
    monkeypatch.setattr(rescue, "_beside", lambda _: iter(()))
    shutil.rmtree(run)
    for _ in range(2):
        with pytest.raises(FolderLost, match="its journal could not be copied anywhere"):
            journal.check()
    journal.close()


def test_a_stale_handle_is_a_lost_folder(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = journal_in(run)

    def stale(self: Path, **_: object) -> os.stat_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(Path, "stat", stale)
    assert rescue.is_lost(os.open(os.devnull, os.O_RDONLY), journal.path)


def test_the_run_is_not_made_again_by_what_a_cell_leaves(run: Path) -> None:
    shutil.rmtree(run)
    with pytest.raises(FileNotFoundError):
        RunFolder(run).prepare("cell")
    assert not run.exists()
