"""The folder of a run is renamed or deleted while its cells run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Fault
from tests.faults.harness import AT_NIGHT, Session, local, meetings

pytestmark = [pytest.mark.real, pytest.mark.beside]

UNREPORTED = 3
BOTH = pytest.mark.parametrize(
    "options", [pytest.param((), id="alone", marks=AT_NIGHT), pytest.param(("-n", "2"), id="workers")]
)


def begun(fault: Fault, options: tuple[str, ...], lacking: Callable[[str, str], None]) -> tuple[Session, Path]:
    """A session with its second or third cell in flight and more to come, and the folder of its run."""
    if options:
        try:
            import xdist  # noqa: F401
        except ImportError:
            lacking("xdist", "pytest-xdist is not installed")
    session = fault.at(local(meetings(6, 0.3))).start(*options)
    session.reaches(fault.chance.randint(2, 3))
    return session, session.run


def ended(session: Session, said: str) -> Path:
    """Where the session says that its results are: it has ended in order, with one message, and they make a report."""
    assert session.end() == UNREPORTED, session.said()
    printed = session.printed.read_text()
    assert "Traceback" not in printed
    assert "INTERNALERROR" not in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("error: "))
    assert said in line
    found = Path(line.partition(" in ")[2].partition(" now: ")[0])
    assert f"`hetgpu report {found}`" in line
    started = {tuple(event["scenario"]) for event in session.events("started")}
    assert len(started) < session.site.cells
    done = session.site.call(sys.executable, "-m", "pytest_hetgpu.cli", "report", str(found))
    assert done.returncode == 0, done.stderr
    assert not list(found.rglob(".*"))
    return found


@BOTH
def test_the_folder_of_a_run_is_renamed(
    fault: Fault, options: tuple[str, ...], lacking: Callable[[str, str], None]
) -> None:
    """The folder of a run is renamed, or the folder above it."""
    session, run = begun(fault, options, lacking)
    name = run.parent if options else run
    name.rename(name.with_name(f"{name.name}-moved"))
    found = ended(session, f"{run} was renamed while cells ran")
    assert not run.exists()
    if options:
        assert not run.parent.exists()
        assert found == run.parent.with_name("reports-moved") / run.name
        found.parent.rename(run.parent)
    else:
        assert found == run.with_name(f"{run.name}-moved")
    fault.checked(session)


@BOTH
def test_the_folder_of_a_run_is_deleted(
    fault: Fault, options: tuple[str, ...], lacking: Callable[[str, str], None]
) -> None:
    """The folder of a run is deleted, or the folder above it."""
    session, run = begun(fault, options, lacking)
    # Ranks may be writing: a file that appears meanwhile goes with the second try.
    for _ in range(2):
        shutil.rmtree(run.parent if options else run, ignore_errors=True)
    found = ended(session, f"{run} was deleted while cells ran")
    assert not run.exists()
    assert found.name == f"{run.name}.rescued"
    assert [path.stat().st_mode & 0o077 for path in (found, found / "journal", *found.glob("journal/*"))].count(0) >= 3
    if options:
        assert found.parent == run.parent.parent
        run.parent.mkdir()
        found = found.rename(run.parent / found.name)
        (run.parent / "latest").symlink_to(found.name)
    fault.checked(session)
