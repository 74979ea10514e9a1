"""The folder of a run is renamed or deleted while a long cell runs: nothing waits for the cell's end."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_accept_stop import HANG, hanging

UNREPORTED = 3


@pytest.fixture
def flying(
    matrix: Callable[..., Path], stacks: Path, pytester: pytest.Pytester, mode: tuple[str, ...]
) -> Iterator[subprocess.Popen[str]]:
    """A session with a cell in flight that has ten minutes."""
    assert stacks
    matrix(["good", "hang"])
    run = hanging(pytester.path, "--hetgpu-timeout", "600", *mode)
    yield run
    run.kill()
    run.communicate()


def ended(run: subprocess.Popen[str], before: Path, now: Path, mode: tuple[str, ...]) -> None:
    """What it printed: it has ended in order long before its cell would."""
    printed, _ = run.communicate(timeout=100)
    assert run.returncode == UNREPORTED, printed
    assert "Traceback" not in printed
    # A worker may have ended its cell, and with it the session, before its controller looks.
    if not "".join(mode).endswith("2"):
        assert f"{before} is no longer there, so the run stops" in printed
    (finding,) = (line for line in printed.splitlines() if line.startswith("error: "))
    assert f"in {now} now: " in finding
    assert f"`--hetgpu-resume={shlex.quote(str(now))}`" in finding
    assert f"reports: {now.relative_to(before.parents[1])}" in printed


def test_a_deleted_folder_ends_the_cell_in_flight(
    flying: subprocess.Popen[str], latest: Callable[[], Path], mode: tuple[str, ...]
) -> None:
    run = latest()
    shutil.rmtree(run)
    rescued = run.with_name(f"{run.name}.rescued")
    ended(flying, run, rescued, mode)
    assert HANG in (rescued / "junit.xml").read_text()


def test_a_renamed_folder_likewise(
    flying: subprocess.Popen[str], latest: Callable[[], Path], mode: tuple[str, ...]
) -> None:
    run = latest()
    moved = run.with_name("moved")
    run.rename(moved)
    ended(flying, run, moved, mode)
    assert HANG in (moved / "junit.xml").read_text()
    # The raw log of the cell in flight came along, and was redacted.
    assert (moved / "scenarios" / HANG / "output.log").is_file()
    assert not (run.parent / ".private" / run.name).exists()


def cut(journal: Path) -> str:
    journal.write_bytes(b"")
    return "was cut from "


def overwritten(journal: Path) -> str:
    size = journal.stat().st_size
    with journal.open("r+b") as file:
        file.write(b"x" * size + b"\n")
    return "was overwritten by another program"


def removed(journal: Path) -> str:
    journal.unlink()
    return "was deleted while cells ran"


@pytest.mark.parametrize("damage", [cut, overwritten, removed])
def test_a_journal_that_another_program_changes_ends_the_run(
    flying: subprocess.Popen[str], latest: Callable[[], Path], damage: Callable[[Path], str]
) -> None:
    run = latest()
    # With workers, the one of the worker with the cell in flight.
    (journal,) = (path for path in (run / "journal").glob("*.jsonl") if f'"{HANG}"' in path.read_text())
    told = damage(journal)
    printed, _ = flying.communicate(timeout=100)
    assert flying.returncode == UNREPORTED, printed
    assert "Traceback" not in printed
    (finding,) = (line for line in printed.splitlines() if line.startswith("error: "))
    assert told in finding
    if damage is not removed:
        assert "Cells may be missing here" in (run / "summary.md").read_text()
