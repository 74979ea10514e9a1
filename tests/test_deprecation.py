"""`docs/reference/deprecation.md` is true: the numbers of files, and the deprecated names that warn."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.compare import format as compared
from pytest_hetgpu.analysis.compare import saved_side
from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.extensions.runtimes.base import RemoteNode
from pytest_hetgpu.extensions.signatures.base import FailureMatch
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.old_spellings import Renamed
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.reporting import boundary_file
from pytest_hetgpu.session.settings import OPTIONS
from pytest_hetgpu.store import environment, events, folder, saved_past

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "reference" / "deprecation.md").read_text(encoding="utf-8")
NUMBERS = {
    "journal/WRITER.jsonl": events.SCHEMA,
    "job.json": folder.SCHEMA,
    "environment.json": environment.SCHEMA,
    "boundary.json": boundary_file.SCHEMA,
    "baseline.json": saved_side.SCHEMA,
    "past.json": saved_past.SCHEMA,
    "hetgpu compare --json": compared.SCHEMA,
}


def test_the_numbers_of_files_are_those_of_the_code() -> None:
    rows = re.findall(r"^`([^`]+)` \| (\d+) \|", PAGE, re.MULTILINE)
    assert {name: int(number) for name, number in rows} == NUMBERS


@pytest.mark.parametrize(("owner", "name"), [(RemoteNode, "ask"), (Outcome, "fates"), (Cluster, "wire")])
def test_a_named_attribute_is_deprecated(owner: type, name: str) -> None:
    assert f"`{owner.__name__}.{name}`" in PAGE
    assert isinstance(vars(owner)[name], Renamed)
    with pytest.warns(DeprecationWarning, match=rf"{name} is \w+ now"):
        getattr(owner, name)


def test_an_old_argument_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = FailureMatch(Signature(Kind.CRASH, "k", "line", 1), certain=False)
        assert (found.fatal, found.certain) == (False, False)


def test_no_option_is_deprecated() -> None:
    assert "No option, matrix key, command or exit code is deprecated now." in PAGE
    assert [option.name for option in OPTIONS if "deprecated" in option.help.lower()] == []


def test_the_page_is_short_and_in_the_navigation() -> None:
    assert len(PAGE.splitlines()) < 60
    assert "reference/deprecation.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
