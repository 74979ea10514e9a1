"""`CITATION.cff` names this version, and `REUSE.toml` gives every tracked file its licence."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_hetgpu._version import __version__

ROOT = Path(__file__).resolve().parents[1]


def toml(name: str) -> dict[str, Any]:
    """Return a TOML file of the top level; Python 3.10 has no module for it."""
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib  # type: ignore[no-redef,import-not-found,unused-ignore]
    return dict(tomllib.loads((ROOT / name).read_text(encoding="utf-8")))


def tracked() -> list[str]:
    """Return the tracked files; skip if this is no checkout."""
    done = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a checkout of git")
    return done.stdout.split("\0")[:-1]


def matches(path: str, glob: str) -> bool:
    """Return whether a path matches a glob of REUSE.toml: `**` matches slashes, `*` does not."""
    parts = re.split(r"(\*\*|\*)", glob)
    return bool(re.fullmatch("".join({"**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in parts), path))


def licences_of(path: str) -> list[dict[str, Any]]:
    """Return the annotations of a file; the last one counts."""
    return [one for one in toml("REUSE.toml")["annotations"] if matches(path, one["path"])]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert citation["license"] == toml("pyproject.toml")["project"]["license"] == "MIT"
    assert citation["authors"] == toml("pyproject.toml")["project"]["authors"]
    assert {"message", "title", "type", "abstract"} <= set(citation)


def test_every_tracked_file_has_a_licence() -> None:
    assert toml("REUSE.toml")["version"] == 1
    files = tracked()
    assert len(files) > 1000
    assert [path for path in files if not licences_of(path)] == []


def test_every_licence_has_its_text() -> None:
    used = {one["SPDX-License-Identifier"] for one in toml("REUSE.toml")["annotations"]}
    assert used == {path.stem for path in (ROOT / "LICENSES").iterdir()} == {"MIT"}
    assert (ROOT / "LICENSES" / "MIT.txt").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert all(one["SPDX-FileCopyrightText"] for one in toml("REUSE.toml")["annotations"])


@pytest.mark.parametrize(
    ("path", "glob", "found"),
    [("a/b.py", "**", True), ("a/b.py", "*", False), ("a/b.py", "a/*.py", True), ("a/b/c", "a/**", True)],
)
def test_a_glob_is_that_of_reuse(path: str, glob: str, found: bool) -> None:
    assert matches(path, glob) is found
