"""The JUnit file of a program as lines of TAP."""

from __future__ import annotations

import ast
import os
import signal
from pathlib import Path

import pytest

from tests.remote.test_run_external import run, script

PROGRAM = Path(__file__).resolve().parents[2] / "pytest_hetgpu" / "remote" / "junit_results.py"
FILE = """\
<?xml version="1.0"?>
<testsuites><testsuite name="s" tests="4">
<testcase classname="solver.Mesh" name="reads"/>
<testcase classname="solver.Mesh" name="writes&#10;#1"><failure message="3 &lt; 4&#10;more">long</failure></testcase>
<testcase name="alone"><error message="boom"/></testcase>
<testcase classname="solver" name="gpu"><skipped message="none"/></testcase>
</testsuite></testsuites>
"""
LINES = [
    "ok 1 - solver.Mesh.reads",
    "not ok 2 - solver.Mesh.writes \\#1",
    "# 3 < 4",
    "not ok 3 - alone",
    "# boom",
    "ok 4 - solver.gpu # SKIP",
    "1..4",
]


def test_it_is_written_for_the_pythons_of_images() -> None:
    ast.parse(PROGRAM.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_results_follow_the_output_and_the_exit_code_stays(tmp_path: Path) -> None:
    (tmp_path / "made.xml").write_text(FILE)
    told = str(tmp_path / "out-{rank}.xml")
    ended = run(
        *(
            tmp_path,
            "--junit",
            told,
            "--",
            "sh",
            "-c",
            'cp "$0" "$1"; echo done; exit 3',
            str(tmp_path / "made.xml"),
            told,
        ),
        OMPI_COMM_WORLD_RANK="2",
        OMPI_COMM_WORLD_SIZE="4",
    )
    assert ended.code == 3
    assert ended.lines == ["done", *LINES]
    assert (tmp_path / "out-2.xml").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no element found: line 1, column 0"),
        ("<testsuite><testcase", "unclosed token: line 1, column 11"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><testsuite/>", "it has a document type, which is not read"),
        ('<?xml version="1.0" encoding="foo"?><testsuite/>', "unknown encoding: foo"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_no_success(tmp_path: Path, text: str | None, reason: str) -> None:
    file, made = tmp_path / "out.xml", tmp_path / "made.xml"
    made.write_text(text or "")
    ended = run(tmp_path, "--junit", str(file), "--", *(("true",) if text is None else ("cp", str(made), str(file))))
    assert ended.lines == [f"Bail out! JUnit file: {reason}", f"# {file}"]


def test_a_file_of_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "out.xml"
    file.write_text(FILE)
    lines = run(tmp_path, "--junit", str(file), "--", "true").lines
    assert lines == ["Bail out! JUnit file: No such file or directory", f"# {file}"]


def test_a_file_behind_a_link_does_not_count(tmp_path: Path) -> None:
    old, link = tmp_path / "old.xml", tmp_path / "link.xml"
    old.write_text(FILE)
    link.symlink_to(old)
    lines = run(tmp_path, "--junit", str(link), "--", "true").lines
    assert lines[0] == "Bail out! JUnit file: No such file or directory"
    assert old.exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '<testsuite tests="4"><testcase name="a"/><error message="collection"/></testsuite>',
            "the suite itself has an error: collection",
        ),
        ('<testsuite name="s" tests="4"><testcase name="a"/></testsuite>', "suite s claims 4 tests and holds 1"),
        ('<testsuite failures="3"><testcase name="a"/></testsuite>', "a suite claims 3 failed tests and holds none"),
        (
            '<testsuites><testsuite errors="1"><testcase name="a"/></testsuite></testsuites>',
            "a suite claims 1 failed tests and holds none",
        ),
    ],
)
def test_a_suite_that_contradicts_its_cases_is_no_success(tmp_path: Path, text: str, reason: str) -> None:
    file, made = tmp_path / "out.xml", tmp_path / "made.xml"
    made.write_text(text)
    lines = run(tmp_path, "--junit", str(file), "--", "cp", str(made), str(file)).lines
    assert lines == ["ok 1 - a", f"Bail out! JUnit file: {reason}", f"# {file}", "1..1"]


@pytest.mark.parametrize(
    "suite",
    [
        # Catch2 2.13 and doctest 2.4
        '<testsuite name="t" errors="0" failures="0" tests="13" hostname="tbd" time="0.000">',
        '<testsuite name="t" errors="0" failures="0" tests="5">',
    ],
)
def test_a_suite_that_counts_assertions_passes(tmp_path: Path, suite: str) -> None:
    file, made = tmp_path / "out.xml", tmp_path / "made.xml"
    made.write_text(f'<testsuites>{suite}<testcase classname="t" name="adds" status="run"/></testsuite></testsuites>')
    assert run(tmp_path, "--junit", str(file), "--", "cp", str(made), str(file)).lines == ["ok 1 - t.adds", "1..1"]


def test_no_plain_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "out.xml").mkdir()
    os.mkfifo(tmp_path / "pipe.xml")
    assert run(tmp_path, "--junit", str(tmp_path / "out.xml"), "--", "true").lines[0].startswith("Bail out! ")
    lines = run(tmp_path, "--junit", str(tmp_path / "pipe.xml"), "--", "true").lines
    assert lines[0] == "Bail out! JUnit file: it is no plain file"


def test_the_rank_is_the_program_and_not_its_parent(tmp_path: Path) -> None:
    """Stacks of a rank that hangs are those of the process that says hello."""
    ended = run(tmp_path, "--junit", str(tmp_path / "out.xml"), "--", "sh", "-c", "echo $$")
    assert [ended.records.hellos[0].pid] == [int(ended.lines[0])] != [ended.pid]


def test_a_signal_ends_the_rank_as_it_ended_the_program(tmp_path: Path) -> None:
    crash = script(tmp_path / "bin", "crash", "#!/bin/sh\nkill -SEGV $$\n")
    assert run(tmp_path, "--junit", str(tmp_path / "none.xml"), "--", str(crash)).code == -signal.SIGSEGV
