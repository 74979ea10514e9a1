"""What a log or a name says is text: no command to the server that runs the job, no mention where it is pasted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.reporting.messages import failure_text
from pytest_hetgpu.reporting.posts.comment import render_comment
from pytest_hetgpu.reporting.posts.issues import issue_texts
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.text import escape_markdown, printable, printable_json
from tests.reporting.report_samples import CRASHED, EXPECTED, job, run_cell, scenario

COMMANDS = (
    *("::error file=a.py::forged", "::add-mask::x", "  ::set-output name=a::b", "::stop-commands::x"),
    *("##[error]x", "x ##[add-path]y", "##vso[task.setvariable variable=a]b", "x##vso[task.complete]"),
    *("##teamcity[buildStatus status='SUCCESS']", "--- group", "+++ group", "~~~ group", "^^^ +++"),
    *("section_start:1560896352:x\r\x1b[0K", "section_end:1:x\r\x1b[0K", "travis_fold:start:x"),
)
# As the servers read them: GitHub's and Azure's runners, TeamCity, Buildkite, GitLab, Travis.
OBEYED = re.compile(
    r"(?mi)^\s*::|##\[|##vso\[|##teamcity\[|^\s*(?:---|\+\+\+|~~~|\^\^\^)(?:\s|$)|section_(?:start|end):\d|travis_fold:"
)
FORGED = "".join(f"\n{one}" for one in COMMANDS) + "\r::error::carriage\x0b::error::feed\u2028::error::line"
LIVE = (
    "@octocat and @org/team #1 GH-1 owner/repo#2 !3 &4 %5 https://evil.example/x www.evil.example "
    "![i](https://e/p.png) [c](javascript:alert(1)) <img src=https://e/q.png> <!-- x --> --!> | a `b` :@y (@z) x.@w"
)
BLOCKS = ("# H1", "- item", "1. item", "> quoted", "/close", "```", "---", "====", "| a | b |", "    code", "<details>")


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_is_not_obeyed(text: str) -> None:
    shown = printable(f"before\n{text}\nafter")
    assert not OBEYED.search(shown)
    assert printable(shown) == shown
    assert shown.startswith("before\n")
    assert shown.endswith("\nafter")


@pytest.mark.parametrize(
    "text", ["a::b", "std::vector", "2 -- 3", "-----", "+1", "x --- y", "## heading", "| --- |", "~", "C++", "a [1]"]
)
def test_other_words_stay(text: str) -> None:
    assert printable(text) == text


@given(st.lists(st.sampled_from([*COMMANDS, ":", "#", "-", " ", "\n", "\r", "\t", "[", "vso[", "section_", "start:1"])))
def test_no_mixture_is_obeyed(parts: list[str]) -> None:
    assert not OBEYED.search(printable("".join(parts)))


@given(st.lists(st.sampled_from([*COMMANDS, "\u202e", '"', "\\", "x"])))
def test_json_stays_what_it_is(parts: list[str]) -> None:
    data = {"a": "".join(parts), "".join(parts): [1]}
    text = printable_json(json.dumps(data))
    assert json.loads(text) == data
    assert printable(text) == text
    assert not OBEYED.search(text)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run in which each text that comes from outside is hostile in both ways."""
    folder = RunFolder.create(tmp_path / "reports")
    hostile = f"{LIVE}{FORGED}"
    assert CRASHED.signature
    signature = replace(CRASHED.signature, primary_line=hostile, hosts=(hostile,))
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", hostile, "0" * 64)], ["pytest", hostile])
        for number, block in enumerate(BLOCKS):
            why = f"{block} {hostile}"
            expectation = replace(EXPECTED, reason=why, known=why, issue=f"{block} @octocat #1")
            facts = {"ucx": why, why: why, "tool": why}
            bad = replace(
                CRASHED,
                why=why,
                signature=replace(signature, key=f"SIGSEGV@lib{number}.so!@octocat #1 ::error::"),
                expectation=expectation,
                stack=why,
                facts=facts,
                notes=(why,),
                concerns=(why,),
                transports=(why,),
                carried={why: (why,)},
            )
            run_cell(folder, journal, f"a-b-c{number}", bad, f"{why}\n".encode("utf-8", "replace") * 2)
        journal.skipped(scenario("a-b-skipped"), hostile, issue=hostile)
    build(folder.path, hostile)
    return folder


@pytest.mark.parametrize("command", ["report", "boundary", "comment", "issues", "explain"])
def test_no_command_prints_one(run: RunFolder, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, str(run.path)]) in (0, 1)
    printed = capsys.readouterr()
    assert printed.out
    for text in (printed.out, printed.err):
        assert not OBEYED.search(text), OBEYED.search(text)


def test_the_text_of_a_failing_test_is_words() -> None:
    assert CRASHED.signature
    bad = replace(CRASHED, why=FORGED, signature=replace(CRASHED.signature, primary_line=FORGED), notes=(FORGED,))
    assert not OBEYED.search(printable(failure_text(job("a-b-c"), bad, "log", "again")))
    assert not OBEYED.search(failure_text(job("a-b-c"), bad, "log", "again"))


def outside_code(text: str) -> Iterator[str]:
    """The words of Markdown that no code holds, as GitHub reads it; HTML and addresses of links are words, too."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False, "html": True})
    for token in markdown.parse(text):
        for one in (token, *(token.children or ())):
            if one.type == "text":
                yield one.content
            if one.type in ("html_inline", "html_block") and not OURS.fullmatch(one.content.strip()):
                yield f"html {one.content}"
            if one.type in ("link_open", "image"):
                yield f"link {one.attrs.get('href') or one.attrs.get('src')}"


MENTION = re.compile(r"(?<![A-Za-z0-9])@\w|[#!&%]\d|\bGH-\d|\w://|www\.|^html |^link (?!scenarios/)")
OURS = re.compile(
    r"(?s)</?(?:br|details|summary)>|<summary>[^<>]*</summary>|<!-- Title: (?:(?!--!?>).)*-->|<!-- hetgpu .*-->"
)


def live(text: str) -> list[str]:
    return [one for one in outside_code(text) if MENTION.search(one)]


def test_no_file_or_post_names_anybody(run: RunFolder) -> None:
    issues = sorted((run.path / "issues").glob("*.md"))
    assert issues
    for path in (run.path / "summary.md", *issues):
        assert live(path.read_text(encoding="utf-8")) == [], path
    record = read_run(run.path)
    posts = list(issue_texts(run.path, record, 60_000))
    assert len(posts) == len(BLOCKS)
    for body in (
        render_comment(run.path, record, 60_000).body,
        *(part for one in posts for part in (one.body, one.again)),
    ):
        assert live(body) == []
    assert [one.title for one in posts if live(escape_markdown(one.title))] == []


@pytest.mark.parametrize("block", [*BLOCKS, LIVE])
def test_escaped_text_is_one_paragraph(block: str) -> None:
    markdown: Any = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False, "html": True})
    for before in ("", "paragraph\n", "- "):
        kinds = {token.type for token in markdown.parse(before + escape_markdown(block, 1000))}
        assert kinds <= {
            *("paragraph_open", "paragraph_close", "inline"),
            *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
        }
    assert live(escape_markdown(block, 1000)) == []


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=40))
def test_any_text_is_escaped_to_words(text: str) -> None:
    made = escape_markdown(text)
    assert "\n" not in made
    assert live(made) == []
