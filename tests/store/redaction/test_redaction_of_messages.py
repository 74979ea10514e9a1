"""Redaction leaves the product's own messages as they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest_hetgpu
from pytest_hetgpu.store.redaction.redact import redact

PACKAGE = Path(pytest_hetgpu.__file__).parent
# Patterns of secrets and texts that are no messages.
NO_MESSAGES = ("rules.py", "redact.py")


def sentences(path: Path) -> Iterator[str]:
    """Yield the literal texts of a module that read as sentences."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 4:
            yield node.value


def test_no_sentence_of_ours_looks_like_a_secret() -> None:
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name not in NO_MESSAGES]
    found = [(path.name, text) for path in paths for text in sentences(path)]
    assert len(found) > 1000
    assert [(name, text) for name, text in found if redact(text) != text] == []
