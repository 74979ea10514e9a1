"""A journal, and what lies beside it, of any bytes: reports are built of what can be read, and say how much cannot."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import strategies as st

from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder, read_job, read_result
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.run_summary import summarise
from tests.fuzz.fuzzing import bounded, cases, damaged, fuzz, harmless, told
from tests.reporting.report_samples import CHANGED, CRASHED, KNOWN, PASSED, run_cell, scenario

WORDS = [
    *(b'"', b"{", b"}", b"[", b"]", b":", b",", b"null", b"true", b"NaN", b"Infinity", b"-1", b"1e400", b"9" * 30),
    *(b'"label"', b'"../../x"', b'".."', b'"\\u001b[2J"', b'"\\ud800"', b'"</script><script>"', b'"javascript:x"'),
    *(b'"event":"judged"', b'"event":"planned"', b'"schema":2', b"[" * 3000, b'"kind":"crash"', b'"\\u0000"', b"]]>"),
    *(b'"epoch":1e308', b'"epoch":-1e308', b'"position":99999999999999999999', b'"scenario":""', b'"[[ATTACHMENT|/x"'),
]
TEXTS = [
    *(
        "",
        " ",
        "\x1b[2J",
        "\u202e",
        "\0",
        "\ud800",
        "\ufffe",
        "</script><script>alert(1)</script>",
        "<b>",
        "]]>",
        "&amp;",
        "%s{0}",
    ),
    *(
        "javascript:alert(1)",
        "https://x/<b>",
        "../../../x",
        "..",
        "/etc/passwd",
        "a\nb",
        "|",
        "[x](javascript:1)",
        "`" * 9,
    ),
    *("[[ATTACHMENT|/etc/passwd]]", "$(id)", "-rf", "x" * 3000, "\u0661", "\U0001f600", "NaN", "Infinity", "-Infinity"),
]
NUMBERS = [0, -1, 1, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, -1e308, 5e-324]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a tree of JSON something stands that has no parts."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    return [path] if parts is None else [leaf for name, part in parts for leaf in leaves(part, (*path, name))]


@st.composite
def twisted(draw: st.DrawFn, good: list[str]) -> bytes:
    """Lines that can be read, and say what nobody should: values of the right kind, and the wrong ones."""
    lines = []
    for text in draw(st.lists(st.sampled_from(good), min_size=1, max_size=9)):
        event = json.loads(text)
        for path in draw(st.lists(st.sampled_from(leaves(event)), max_size=4, unique=True)):
            inner = event
            for name in path[:-1]:
                inner = inner[name]
            old = inner[path[-1]]
            wrong: list[object] = [*TEXTS, *NUMBERS, None, {}, []]
            right: list[object] = [*TEXTS] if isinstance(old, str) else [*NUMBERS]
            other = right if isinstance(old, str) or type(old) in (int, float) else wrong
            inner[path[-1]] = draw(st.sampled_from(other))
        lines.append(json.dumps(event))
    return "\n".join(lines).encode("ascii")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run in which everything happened once."""
    folder = RunFolder.create(tmp_path / "reports")
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest", "--hetgpu-matrix", "aws.yaml"])
        for label, outcome in {"a-b-good": PASSED, "a-b-bad": CRASHED, "a-b-known": KNOWN, "a-b-hung": CHANGED}.items():
            run_cell(folder, journal, label, outcome)
        journal.skipped(scenario("a-b-skipped"), "never", issue="https://example.org/1", position=4)
    return folder


def inside(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def reported(run: RunFolder) -> None:
    """Everything that is made of a run is made, and is what it should be."""
    around = inside(run.path.parent.parent) - inside(run.path)
    record = build(run.path, "pytest --hetgpu-cell {label}")
    assert inside(run.path.parent.parent) - inside(run.path) == around
    root = ET.parse(run.path / "junit.xml").getroot()
    assert len(list(root.iter("testcase"))) == len(record.cells)
    harmless((run.path / "summary.md").read_text(encoding="utf-8"))
    page = (run.path / "index.html").read_text(encoding="utf-8")
    facts = page.partition('<script type="application/json" id="facts">')[2].partition("</script>")[0]
    assert not set(facts) & set("<>&")
    assert len(json.loads(facts)["cells"]) == len(record.cells)
    assert read_run(run.path).cells == record.cells
    summarise(record, run.path)


def test_journals(run: RunFolder) -> None:
    path = run.path / "journal" / "main.jsonl"
    good = path.read_bytes()
    reported(run)

    def check(data: bytes) -> None:
        path.write_bytes(data)
        reported(run)

    fuzz(damaged([good], [*WORDS, *good.splitlines(keepends=True)]), check, examples=40)


def test_events(run: RunFolder) -> None:
    path = run.path / "journal" / "main.jsonl"
    good = path.read_text(encoding="ascii").splitlines()

    def check(data: bytes) -> None:
        path.write_bytes(data)
        reported(run)

    fuzz(twisted(good), check, examples=60)


def test_kept_jobs(run: RunFolder) -> None:
    path = run.job("a-b-bad")
    good = path.read_bytes()

    def check(data: bytes) -> None:
        path.write_bytes(data)
        for read in (read_job, read_result):
            try:
                read(path)
            except RecordError as error:
                told(error)

    check(good)
    fuzz(damaged([good], WORDS), check)


@pytest.mark.parametrize("case", cases("journal"), ids=lambda path: path.name)
def test_what_was_found(run: RunFolder, case: Path) -> None:
    shutil.copy(case, run.path / "journal" / "main.jsonl")
    with bounded():
        reported(run)
