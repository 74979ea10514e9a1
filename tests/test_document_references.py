"""The documents are complete, and everything that they name exists: options, commands, variables, pages and files."""

from __future__ import annotations

import argparse
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_hetgpu.session.settings import OPTIONS
from tests.document_blocks import PAGES, ROOT

DOCS = ROOT / "docs"
OPTION_PAGE = (DOCS / "reference" / "options.md").read_text(encoding="utf-8")
COMMAND_PAGE = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
#: Pages with links; those in `docs/` are checked once more by the strict build of the site.
LINKING = (
    *PAGES,
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "reports/README.md")),
    *sorted((ROOT / "containers").rglob("README.md")),
)
#: Variables that processes of a run pass to each other.
INTERNAL = {"HETGPU_OWNER", "HETGPU_JOB", "HETGPU_NODE", "HETGPU_NAME", "HETGPU_CRASHES"}
NAMED = re.compile(r"`((?:matrices|tests|benchmarks|containers|examples|requirements|docs)/[\w./-]*[\w/])(?:::\w+)?`")


def test_every_option_is_documented() -> None:
    rows = re.findall(r"^(?:\| )?`(--hetgpu-[a-z-]+)(?: [^`]+)?`( \*)? \|", OPTION_PAGE, re.MULTILINE)
    assert {flag: bool(star) for flag, star in rows} == {option.flag: not option.everywhere for option in OPTIONS}


def test_every_default_that_is_documented_is_one() -> None:
    for flag, default in re.findall(r"^(?:\| )?`(--hetgpu-[a-z-]+)[^`]*`.*\((\d[\dM.]*)\)", OPTION_PAGE, re.MULTILINE):
        (option,) = (one for one in OPTIONS if one.flag == flag)
        assert f"default: {default})" in option.help or f"{default} " in f"{option.help} ", flag


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_option_that_a_page_names_exists(path: Path) -> None:
    named = set(re.findall(r"(--hetgpu-[a-z-]*[a-z])", path.read_text(encoding="utf-8")))
    assert named <= {option.flag for option in OPTIONS}


def parsers(monkeypatch: pytest.MonkeyPatch) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each `hetgpu` command."""
    found: dict[str, argparse.ArgumentParser] = {}

    def keep(self: argparse.ArgumentParser, _: list[str] | None = None) -> None:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found.update(action.choices)
        raise SystemExit(0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", keep)
    (script,) = entry_points(group="console_scripts", name="hetgpu")
    script.load()(["schema"])
    return found


def test_every_command_and_its_options_are_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parsers(monkeypatch)
    assert set(re.findall(r"^(?:\| )?`hetgpu ([a-z]+)", COMMAND_PAGE, re.MULTILINE)) == set(found)
    for name, parser in found.items():
        rows = [line for line in COMMAND_PAGE.splitlines() if f"`hetgpu {name}" in line or name == "clean"]
        flags = {flag for action in parser._actions for flag in action.option_strings} - {"-h", "--help"}
        assert [flag for flag in sorted(flags) if not re.search(rf"`{flag}[` ]", "\n".join(rows))] == [], name


def test_every_variable_is_documented() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "pytest_hetgpu").rglob("*.py"))
    read = {name for text in sources for name in re.findall(r"""["'](HETGPU_[A-Z_]+)["']""", text)}
    options = {option.dest.upper() for option in OPTIONS}
    assert sorted(name for name in read - INTERNAL - options if f"`{name}`" not in OPTION_PAGE) == []


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        if not re.match(r"https?:|mailto:", target):
            found = path if not file else path.parent / file
            if not found.exists() or (anchor and anchor not in anchors(found)):
                lost.append(target)
    assert lost == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_is_named_exists(path: Path) -> None:
    assert [name for name in NAMED.findall(path.read_text(encoding="utf-8")) if not (ROOT / name).exists()] == []


def navigation(entries: list[Any]) -> list[str]:
    """Return the pages of a navigation tree."""
    values = [value for entry in entries for value in entry.values()]
    return [page for value in values for page in ([value] if isinstance(value, str) else navigation(value))]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert sorted(pages) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_pages_are_sorted_by_need() -> None:
    kinds = {path.relative_to(DOCS).parts[0] for path in DOCS.rglob("*.md")}
    assert kinds == {"index.md", "tutorials", "how-to", "reference", "explanation"}
