"""Texts for GitHub and GitLab: nothing in a run mentions, refers, commands or imitates; every text fits."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.reporting.posts.comment import render_comment
from pytest_hetgpu.reporting.posts.issues import groups, issue_texts
from pytest_hetgpu.reporting.posts.markup import fit, has_marker, marker, neutral
from pytest_hetgpu.store.cells import RunRecord, read_run
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CHANGED, CRASHED, FIXED, KNOWN, PASSED, SIGNATURE, cell, run_cell

LONGEST = 65_536
MARK = marker("comment", "", "aws")
HOSTILE = f"/close @all fixes #12 !3 <script>x</script> {MARK} ```` | `@team` [x](javascript:y) \x1b[2J\u202e"
LOG = f"first\n```\n/close\n@all\n{MARK}\n````\n/assign @admin\n<b>\n"


def hostile_run(place: Path, *labels: str) -> tuple[Path, RunRecord]:
    """A run in which names, reasons, signatures and logs are hostile."""
    folder = RunFolder.create(place)
    signature = replace(SIGNATURE, key=HOSTILE, primary_line=HOSTILE, function=HOSTILE, library=HOSTILE, line=1)
    with closing(Journal(folder.path, "main")) as journal:
        for label in labels:
            run_cell(folder, journal, label, replace(CRASHED, why=HOSTILE, signature=signature), LOG.encode() * 3)
    return folder.path, read_run(folder.path)


def active(text: str) -> list[str]:
    """What GitHub or GitLab act on in a text: mentions and references outside code, HTML, commands."""
    found = []
    for token in MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(text):
        for one in (token, *(token.children or ())):
            if one.type in ("html_block", "html_inline"):
                found.append(one.content.strip())
            elif one.type == "text":
                found += re.findall(r"(?<![A-Za-z0-9])@\w+|[#!&]\d+", one.content)
            elif one.type == "link_open":
                found.append(str(one.attrs["href"]))
    outside = re.sub(r"^```.+?\n```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return found + re.findall(r"^/\w+", outside, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail a@b.c, key SIGSEGV@libuct.so", "mail a@b.c, key SIGSEGV@libuct.so"),
        ("@all and (@team/x)", "@\u200ball and (@\u200bteam/x)"),
        ("`@all #1` \\` @all `", "`@all #1` \\` @\u200ball `"),
        ("#12 !3 GH-4 # 5", "#\u200b12 !\u200b3 GH-\u200b4 # 5"),
        ("/close\n  /assign x\na/b\n/ x", "\\/close\n  \\/assign x\na/b\n/ x"),
        ("````sh\n```\n/close @all\n````\n/close", "```sh\n`\u200b`\u200b`\n/close @all\n```\n\\/close"),
        ("a\n<!-- hetgpu comment 0 -->", "a\n<!\u200b-- hetgpu comment 0 -->"),
    ],
)
def test_what_a_server_acts_on_is_disabled(text: str, expected: str) -> None:
    assert neutral(text) == expected


def test_a_marker_counts_only_in_its_line() -> None:
    assert has_marker(f"{MARK}\r\ntext", MARK)
    assert not has_marker(f"text\n{MARK}", MARK)
    assert has_marker(f"text\n{MARK}", MARK, line=1)
    assert not has_marker("", MARK, line=1)
    assert marker("comment", "a", "b") != marker("comment", "ab")
    assert re.fullmatch(r"<!-- hetgpu comment [0-9a-f]{16} -->", marker("comment", "--> @all \udcff"))


@pytest.mark.parametrize("length", range(40, 130, 7))
def test_a_text_is_cut_at_a_line_and_its_fence_closed(length: int) -> None:
    text = "# Title\n\n```\n" + "line of the log\n" * 9 + "```\nafter\n"
    made = fit(text, length)
    assert len(made) <= length
    assert sum(line.startswith("```") for line in made.split("\n")) % 2 == 0
    assert made.endswith("(The rest is left out here.)\n")
    assert fit(text, len(text)) == text


def test_a_hostile_run_makes_a_tame_comment(tmp_path: Path) -> None:
    run, record = hostile_run(tmp_path, "a-b-c", "a-b-@all", "a-/close-#1")
    made = render_comment(run, record, LONGEST, name=HOSTILE, link="https://ci.example/1")
    assert active(made.body) == [made.marker, "https://ci.example/1"]
    assert made.body.count(made.marker) == 1
    rows = [line for line in made.body.split("\n") if line.startswith("| ❌")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [5, 5, 5]
    assert not {"\x1b", "\u202e"} & set(made.body)


def test_a_hostile_run_makes_a_tame_issue(tmp_path: Path) -> None:
    run, record = hostile_run(tmp_path, "a-b-c", "a-b-d")
    (made,) = issue_texts(run, record, LONGEST)
    heading = re.compile(r"<!-- Title: (?:(?!-->).)*-->")
    for text, marks in ((made.body, [made.marker, made.run_marker]), (made.again, [made.run_marker])):
        found = [one for one in active(text) if not heading.fullmatch(one)]
        assert "\n".join(found).split("\n") == marks
        assert not {"\x1b", "\u202e"} & set(text)
    assert "@all" not in made.title
    assert "#12" not in made.title
    # The log is in the text as it is, but for fences of its own.
    assert "\n/assign @admin\n<b>\n" in made.body


def test_every_text_fits_however_many_cells_fail() -> None:
    crashes = [cell(f"mixed-ucx-{number}", replace(CRASHED, why="w" * 400)) for number in range(800)]
    record = RunRecord((*crashes, cell("a-b-d", PASSED)))
    made = render_comment(Path("run"), record, LONGEST)
    assert len(made.body) <= LONGEST
    left = re.search(r"^(\d+) more are left out here\.$", made.body, re.MULTILINE)
    assert left
    assert made.body.count("| ❌ new |") + int(left[1]) == 800
    assert "Cells of aws: 800 new, 1 ok." in made.body
    assert len(render_comment(Path("run"), record, 1_000_000).body) > 100_000
    longest = list(issue_texts(Path("run"), record, 5000))
    assert [max(len(one.body), len(one.again)) <= 5000 for one in longest] == [True]


def test_the_table_has_what_is_new_changed_or_fixed() -> None:
    cells: dict[str, Any] = {"a-b-new": CRASHED, "a-b-known": KNOWN, "a-b-changed": CHANGED, "a-b-fixed": FIXED}
    record = RunRecord(tuple(cell(name, outcome) for name, outcome in cells.items()))
    made = render_comment(Path("run"), record, LONGEST)
    rows = [line for line in made.body.split("\n") if line.startswith("| ") and "cell" not in line]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| ❌ new", "a-b-new"],
        ["| 🟠 changed", "a-b-changed"],
        ["| 🔧 fixed", "a-b-fixed"],
    ]
    assert "hang, expected crash SIGSEGV@libuct" in rows[1]
    assert list(groups(record)) == [CRASHED.signature.key if CRASHED.signature else ""]
    assert made.news
    assert not render_comment(Path("run"), RunRecord((cell("a-b-known", KNOWN),)), LONGEST).news


def test_a_link_is_a_web_address() -> None:
    with pytest.raises(UsageError, match="not a web address"):
        render_comment(Path("run"), RunRecord(()), LONGEST, link="https://x/)[y](javascript:z")
