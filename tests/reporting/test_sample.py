"""The published sample report: complete, small, and without traces of the machine that made it."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "reports" / "sample"
LARGEST = 3_000_000  # bytes, most of them the script that draws charts
CRASH = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"
PLACES = re.compile(
    r"/(?:home|root|Users|work|mnt|var/tmp)/[^\s\"',)]*|/tmp/(?!hetgpu[/\s\"']|hetgpu-[0-9a-f]{8})[^\s\"',)]*"
)
ADDRESSES = re.compile(r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.]*\w)")


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    page = (SAMPLE / "index.html").read_text(encoding="utf-8")
    found = re.search(r'id="facts">(.*?)</script>', page, re.DOTALL)
    assert found
    made: dict[str, Any] = json.loads(found[1])
    return made


def texts(facts: dict[str, Any]) -> dict[str, str]:
    """Return the text of every file; of the page only the run's data, without the foreign chart script."""
    files = {
        str(path.relative_to(SAMPLE)): path
        for path in SAMPLE.rglob("*")
        if path.is_file() and path.name != "index.html"
    }
    return {"index.html": json.dumps(facts), **{name: path.read_text("utf-8") for name, path in files.items()}}


def test_it_is_all_there_and_small(facts: dict[str, Any]) -> None:
    files = [path for path in SAMPLE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST
    assert len(files) < 30
    assert facts["matrices"] == [["containers", "matrices/containers.yaml"]]
    assert len(facts["cells"]) == 58
    assert "Of 58 cells" in (SAMPLE / "summary.md").read_text("utf-8")
    assert ET.parse(SAMPLE / "junit.xml").getroot().get("tests") == "58"


def test_every_link_leads_somewhere(facts: dict[str, Any]) -> None:
    linked = {cell["log"] for cell in facts["cells"] if "log" in cell} | set(facts["issues"].values())
    assert len(linked) > 3
    summary = (SAMPLE / "summary.md").read_text("utf-8")
    linked |= {unquote(one) for one in re.findall(r"\]\(((?:scenarios|issues)/[^)]+)\)", summary)}
    junit = (SAMPLE / "junit.xml").read_text("utf-8")
    linked |= set(re.findall(r"\[\[ATTACHMENT\|reports/sample/([^\]]+)\]\]", junit))
    assert "ATTACHMENT|/" not in junit
    assert [name for name in sorted(linked) if not (SAMPLE / name).is_file()] == []


def test_it_says_nothing_of_the_machine_that_made_it(facts: dict[str, Any]) -> None:
    assert facts["hosts"] == ["host-A"]
    said = texts(facts)
    assert {name: found for name, text in said.items() if (found := PLACES.findall(text))} == {}
    inner = {"0.0.0.0", "127.0.0.1"}
    assert {name: address for name, text in said.items() if (address := set(ADDRESSES.findall(text)) - inner)} == {}


def test_it_has_an_issue_and_what_reproduces_it(facts: dict[str, Any]) -> None:
    issue = (SAMPLE / facts["issues"][CRASH]).read_text("utf-8")
    assert issue.startswith("<!-- Title: SIGSEGV in uct_tcp_ep_am_short")
    script = SAMPLE / "scenarios" / "same-ucx-guarded_send" / "reproduce.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    assert subprocess.run(("sh", "-n", script), check=False).returncode == 0
    assert CRASH in script.read_text("utf-8")
