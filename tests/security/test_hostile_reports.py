"""What hostile matrices and logs say reaches reports as text: no markup, no links but the web's, no escapes, no XML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pytest_hetgpu.analysis.compare import from_junit
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, EXPECTED, run_cell, scenario

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\x1b]0;x\x07\x1b[2J\u202e{{7*7}}%s ]]>&x;"
LINKS = ("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", 'https://x/"><script>', "https://x y")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "reports")
    signature = replace(CRASHED.signature, key=HOSTILE, primary_line=HOSTILE) if CRASHED.signature else None
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile(HOSTILE, HOSTILE, "0" * 64)], ["pytest", HOSTILE], [HOSTILE])
        for number, link in enumerate(LINKS):
            expectation = replace(EXPECTED, issue=link, known=HOSTILE, reason=HOSTILE, signatures=(HOSTILE,))
            bad = replace(CRASHED, why=HOSTILE, signature=signature, expectation=expectation, stack=HOSTILE)
            run_cell(folder, journal, f"a-b-c{number}", bad, HOSTILE.encode() * 3)
        journal.skipped(scenario("a-b-skipped"), HOSTILE, issue=LINKS[0])
    build(folder.path, HOSTILE)
    return folder


def test_the_page_has_its_own_scripts_and_elements_alone(run: RunFolder) -> None:
    page = (run.path / "index.html").read_text(encoding="utf-8")
    assert page.count("<script") == 3
    assert "<img" not in page
    assert "\x1b" not in page
    facts = page.partition('id="facts">')[2].partition("</script>")[0]
    assert not set(facts) & set("<>&'")
    assert json.loads(facts)["cells"]
    assert "default-src 'none'" in page
    # Scripts make elements of text, and links of web addresses only.
    own = page.partition('"use strict";')[2]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", own)
    assert re.search(r"/\^https\?:", own)


def markup(text: str) -> Iterator[str]:
    """The HTML, and the addresses of links, that Markdown as GitHub reads it has in a text."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False, "html": True})
    for token in markdown.parse(text):
        for one in (token, *(token.children or ())):
            if one.type in ("html_block", "html_inline"):
                yield one.content
            if one.type in ("link_open", "image"):
                yield str(one.attrs.get("href") or one.attrs.get("src"))


# What a form for upstream begins with, or folds a long log with; what leads to a cell's log.
OURS = re.compile(
    r"(?s)\s*(<!-- Title: [^<>]*-->|</?(br|details|summary)>|<summary>[^<>]*</summary>|scenarios/[\w./+-]+)\s*"
)


def test_the_other_reports_hold_words(run: RunFolder) -> None:
    issues = sorted((run.path / "issues").glob("*.md"))
    assert issues
    for path in (run.path / "summary.md", *issues):
        text = path.read_text(encoding="utf-8")
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert [found for found in markup(text) if not OURS.fullmatch(found)] == [], path
    root = ET.parse(run.path / "junit.xml").getroot()
    assert len(list(root.iter("testcase"))) == len(LINKS) + 1
    assert not any(tag.tag in ("script", "img") for tag in root.iter())


LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
    + "]><testsuites><testsuite><testcase name='&j;'/></testsuite></testsuites>"
)
FOREIGN = (
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><testsuites><testcase name="a">&a;</testcase></testsuites>'
)


@pytest.mark.parametrize("text", [LAUGHS, FOREIGN, "<" * 100_000, "<a>" * 100_000])
def test_a_junit_file_of_anybodys_is_read_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"junit.xml: (not the JUnit file of a run|holds no cell)"):
        from_junit.read(path)
