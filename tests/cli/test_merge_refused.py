"""Names, folders and disks with which `hetgpu merge` does nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.merge import is_merged
from tests.cli.merge_runs import LABEL, made_run, merged, two_sites


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two(here: Path) -> tuple[str, str]:
    return two_sites(here)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `hetgpu merge` prints on an error; it leaves nothing behind."""
    before = sorted(Path().rglob("*"))
    assert main(["merge", *arguments]) == 4
    assert sorted(Path().rglob("*")) == before
    return capsys.readouterr().err


@pytest.mark.parametrize("name", ["../x", "", "a b", "a/b", ".a", "a\x1b[31m", "x" * 41, "a@b", "é"])
def test_a_name_that_is_no_name_is_refused(two: tuple[str, str], capsys: pytest.CaptureFixture[str], name: str) -> None:
    error = refused(capsys, two[0], f"{name}=nv/latest", "-o", "out")
    assert "cannot name a site" in error
    assert "\x1b" not in error


def test_the_default_name_is_the_host_made_fit_for_a_folder(here: Path) -> None:
    made_run(here / "a")
    evil = made_run(here / "b")
    path = evil / "journal" / "main.jsonl"
    lines = path.read_text().splitlines()
    started = {**json.loads(lines[0]), "host": "../\x1b[31m" + "x" * 300}
    path.write_text("\n".join([json.dumps(started), *lines[1:]]))
    record = read_run(merged("a=a/latest", "b/latest"))
    assert [one.site for one in record.merged] == ["a", f"31m{'x' * 37}"]
    assert len(list(Path("out", "scenarios").iterdir())) == 4


def test_equal_names_and_equal_runs_are_refused(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "are both of the site" in refused(capsys, "amd/latest", "nv/latest", "-o", "out")
    assert "are both of the site x: name them, NAME=FOLDER" in refused(
        capsys, "x=amd/latest", "x=nv/latest", "-o", "out"
    )
    assert "are the same run" in refused(capsys, "a=amd/latest", "b=amd/latest", "-o", "out")
    shutil.copytree("amd/latest", "copy")
    assert "are the same run" in refused(capsys, "a=amd/latest", "b=copy", "-o", "out")
    assert "give two or more runs" in refused(capsys, "a=amd/latest", "-o", "out")
    assert "gone: no such folder" in refused(capsys, "a=gone", "b=copy", "-o", "out")
    merged(*two)
    capsys.readouterr()
    assert "out was merged from several runs" in refused(capsys, "a=out", "b=copy", "-o", "other")


def test_a_link_in_a_run_is_refused(here: Path, two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    log = RunFolder(here / "nv" / "latest").log(LABEL)
    log.unlink()
    log.symlink_to("/etc/passwd")
    assert "is a link" in refused(capsys, *two, "-o", "out")


def test_a_folder_in_the_way_is_kept(
    here: Path, two: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("full").mkdir()
    Path("full", "notes").write_text("mine")
    Path("file").write_text("mine")
    Path("link").symlink_to("full")
    assert "no merge made it" in refused(capsys, *two, "-o", "full", "--force")
    assert "it is no folder" in refused(capsys, *two, "-o", "file", "--force")
    assert "it is no folder" in refused(capsys, *two, "-o", "link", "--force")
    assert "overlaps with the run" in refused(capsys, *two, "-o", "amd", "--force")
    assert "overlaps with the run" in refused(capsys, *two, "-o", "nv/latest/inside")
    Path("empty").mkdir()
    monkeypatch.chdir("empty")
    for name in (".", "../empty"):
        assert "current directory" in refused(capsys, "a=../amd/latest", "b=../nv/latest", "-o", name)
    monkeypatch.chdir(here)
    assert is_merged(merged(*two, output="empty"))
    capsys.readouterr()
    assert "replace the earlier merge with --force" in refused(capsys, *two, "-o", "empty")


def test_an_error_of_the_disk_is_a_message_and_leaves_an_earlier_merge(
    here: Path, two: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(*two)
    capsys.readouterr()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    error = refused(capsys, *two, "-o", "out", "--force")
    assert "No space left on device; nothing was merged" in error
    assert "Traceback" not in error
    assert read_run(Path("out")).cells
