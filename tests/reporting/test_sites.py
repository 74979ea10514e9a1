"""The lines on the sites of a merged run."""

from __future__ import annotations

from dataclasses import replace

from pytest_hetgpu.reporting.sites import LONGEST_LINE, site_lines
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.events import MatrixFile, Merged, SessionStarted
from tests.reporting.report_samples import PASSED, cell

SESSION = SessionStarted("1", (MatrixFile("aws@amd", "a.yaml", "1" * 64),), ("pytest",), "gpu1", 1.7e9)
MERGED = Merged("amd", "r1", "gpu1", {"aws@amd": "aws"})


def lines(*merged: Merged, stacks: bool = True, sessions: tuple[SessionStarted, ...] = (SESSION,)) -> list[str]:
    cells = (replace(cell("a-b-c", PASSED), matrix="aws@amd"),)
    return list(site_lines(RunRecord(cells, sessions, merged=merged), stacks=stacks))


def test_a_site_has_its_run_its_file_and_its_stacks() -> None:
    start = "amd: run r1 from the host gpu1, started on 2023-11-14 22:13:20 UTC: aws (a.yaml)"
    assert lines(MERGED) == [f"{start}, with Open MPI v5.0.11"]
    assert lines(MERGED, stacks=False) == [start]


def test_a_site_may_lack_everything() -> None:
    assert lines(Merged("x", "r2", "")) == ["x: run r2: no matrix"]
    assert lines(MERGED, sessions=()) == ["amd: run r1 from the host gpu1: aws, with Open MPI v5.0.11"]


def test_a_resumed_run_has_its_last_start() -> None:
    again = replace(SESSION, started=1.7e9 + 60)
    assert "started on 2023-11-14 22:14:20 UTC" in lines(MERGED, sessions=(SESSION, again))[0]


def test_versions_are_listed_with_their_sites() -> None:
    others = [replace(SESSION, matrices=(MatrixFile(f"aws@{site}", "b.yaml", "2" * 64),)) for site in ("nv", "cpu")]
    merged = [Merged(site, "r", "h", {f"aws@{site}": "aws"}) for site in ("nv", "cpu")]
    assert lines(MERGED, *merged, sessions=(SESSION, *others))[-1] == (
        "aws is not the same file at all sites, so that its cells may differ (SHA-256): "
        "111111111111 at amd; 222222222222 at nv, cpu"
    )


def test_hostile_text_is_one_short_line() -> None:
    (line,) = lines(Merged("x\x1b[31m\n", "y" * 5000, "\u202e"))
    assert line.isprintable()
    assert len(line) == LONGEST_LINE
