"""`docs/explanation/security.md` claims nothing without a test, and names no test that there is not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


def test_every_claim_has_a_test() -> None:
    tables = re.findall(r"^claim \| test\n---\|---\n((?:.+\n)+)", PAGE, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 30
    assert [row for row in rows if not re.search(r"^[^|]+ \| [^|]*`tests/[\w/]+\.py(::\w+)?`[^|]*$", row)] == []


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_is_named_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert any(one.startswith("test_") for one in found)
    assert not name or name in found


def test_every_test_of_security_is_on_the_page() -> None:
    told = {file for file, _ in NAMED}
    here = {
        f"tests/{folder}/{path.name}"
        for folder in ("security", "fuzz")
        for path in (ROOT / "tests" / folder).glob("test_*.py")
    }
    assert here - told == set()
