"""A journal whose folder is renamed or deleted while it is written."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from pytest_hetgpu.store import rescue
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.rescue import FolderLost


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return RunFolder.create(tmp_path / "home" / "reports").path


def journal_in(run: Path, writer: str = "main") -> Journal:
    journal = Journal(run, writer)
    if writer == "main":
        journal.session_started([], ["pytest"])
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
        journal.session_started([], ["lost"])
    journal.session_started([], ["later"])
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
        journal.session_started([], [journal.path.stem])
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
    journal_in(run).session_started([], ["other"])
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
    monkeypatch.setattr(rescue, "_candidate_folders", lambda _: iter(()))
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


def test_after_a_second_loss_the_message_names_the_last_place(run: Path) -> None:
    journal = journal_in(run)
    shutil.rmtree(run)
    with pytest.raises(FolderLost):
        journal.check()
    shutil.rmtree(run.parent)
    with pytest.raises(FolderLost) as caught:
        journal.check()
    rescued = run.parents[1] / f"{run.name}.rescued"
    assert journal.folder == rescued
    assert str(caught.value) == journal.lost
    assert journal.lost.startswith(f"{run} was deleted while cells ran, so")
    assert f"; what was judged is in {rescued} now: " in journal.lost
    assert f"`--hetgpu-resume={rescued}`" in journal.lost
    assert rescued.is_dir()


def raw_log(run: Path, label: str = "cell") -> Path:
    folder = RunFolder(run, "part-1/attempt-1")
    folder.make_private_folders()
    folder.raw(label).write_text("secret")
    return folder.raw(label)


def test_raw_logs_follow_a_renamed_folder(run: Path) -> None:
    journal, raw = journal_in(run), raw_log(run)
    run.rename(run.with_name("moved"))
    with pytest.raises(FolderLost) as caught:
        journal.check()
    assert "raw logs" not in str(caught.value)
    moved = RunFolder(run.with_name("moved"), "part-1/attempt-1")
    assert moved.raw("cell").read_text() == "secret"
    assert [name for _, name in moved.unpublished_logs()] == ["cell"]
    assert not raw.exists()


def test_raw_logs_follow_to_where_journals_are_copied(run: Path) -> None:
    journal, raw = journal_in(run), raw_log(run)
    shutil.rmtree(run)
    with pytest.raises(FolderLost):
        journal.check()
    assert RunFolder(journal.folder, "part-1/attempt-1").raw("cell").read_text() == "secret"
    assert not raw.exists()


def test_raw_logs_that_cannot_follow_are_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, raw = journal_in(run), raw_log(run)
    run.rename(run.with_name("moved"))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FolderLost, match=f"; its raw logs are still in {RunFolder(run).private}$"):
        journal.check()
    assert raw.exists()


def test_a_journal_is_astray_until_that_is_met(run: Path) -> None:
    journal = journal_in(run)
    assert not journal.is_lost()
    shutil.rmtree(run)
    assert journal.is_lost()
    with pytest.raises(FolderLost):
        journal.check()
    assert not journal.is_lost()
    journal.close()
    assert not journal.is_lost()


def test_an_interrupt_in_a_lost_folder_is_its_loss(run: Path) -> None:
    journal = journal_in(run)
    with pytest.raises(KeyboardInterrupt), rescue.detect_loss(journal.check):
        raise KeyboardInterrupt
    inside = rescue.detect_loss(journal.check)
    inside.__enter__()
    shutil.rmtree(run)
    with pytest.raises(FolderLost):
        inside.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)


def test_a_journal_that_is_cut_is_lost_once_and_goes_on(run: Path) -> None:
    journal = journal_in(run)
    journal.session_started([], ["second"])
    os.truncate(journal.path, 40)
    assert journal.is_lost()
    with pytest.raises(FolderLost, match=r"was cut from [\d,]+ to 40 bytes by another program"):
        journal.session_started([], ["lost"])
    assert not journal.is_lost()
    journal.session_started([], ["later"])
    journal.close()
    record = read_run(run)
    assert [tuple(one.argv) for one in record.sessions] == [("later",)]
    assert record.unread == {"damaged": 1, "missing": 1}


def test_a_journal_that_is_overwritten_is_lost(run: Path) -> None:
    journal = journal_in(run)
    journal.path.write_bytes(b"x" * (journal.path.stat().st_size + 1))
    with pytest.raises(FolderLost, match="was overwritten by another program"):
        journal.check()


def test_a_journal_with_two_writers_is_not_changed(run: Path) -> None:
    one, other = journal_in(run, "again"), journal_in(run, "again")
    for journal in (one, other, one, other):
        journal.session_started([], ["pytest"])
    one.check()
    assert (one.lost, other.lost) == ("", "")
