"""`hetgpu explain`: logs in, answers out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.cli.explain.intake import STDIN, readable
from pytest_hetgpu.cli.explain.wording import as_json, as_text, shown
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.errors import UsageError

EXIT_UNREADABLE = 4


def run(logs: Sequence[str], *, json: bool, added: Sequence[Path], say: Callable[[str], object]) -> int:
    """Explains each log; 0, or 4 where one could not be read. Raises KnowledgeError for a file that is wrong."""
    known = known_failures(tuple(added))
    code = 0
    for place, name in enumerate(logs or (STDIN,)):
        try:
            with readable(name) as path:
                explanation = explain(path, known)
        except UsageError as error:
            sys.stderr.write(f"ERROR: {shown(str(error))}\n")
            code = EXIT_UNREADABLE
            continue
        if json:
            say(as_json(name, explanation))
        else:
            say(("\n" if place else "") + as_text("standard input" if name == STDIN else name, explanation))
    return code
