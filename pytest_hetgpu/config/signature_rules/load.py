"""The rules of a run's own files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule


@cache
def signature_rules(files: tuple[Path, ...]) -> tuple[MatchRule, ...]:
    """Load the rules of these files; none without a file. Raises KnowledgeError with every error in them."""
    if not files:
        return ()
    from pytest_hetgpu.config.signature_rules.file import read, replaced

    return replaced({path: read(path) for path in files})
