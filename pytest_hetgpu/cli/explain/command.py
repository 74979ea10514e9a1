"""`hetgpu explain`: reads logs, prints explanations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.cli.explain.format import as_json, as_text, display_line
from pytest_hetgpu.cli.explain.log_input import STDIN, open_log
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.config.signature_rules.load import signature_rules
from pytest_hetgpu.errors import UsageError

EXIT_UNREADABLE = 4


def run(
    logs: Sequence[str],
    *,
    json: bool,
    added: Sequence[Path],
    print_line: Callable[[str], object],
    signatures: Sequence[Path] = (),
) -> int:
    """Explain each log; return 0, or 4 if one could not be read. Raises KnowledgeError for a wrong file."""
    known, own = known_failures(tuple(added)), signature_rules(tuple(signatures))
    code = 0
    for place, name in enumerate(logs or (STDIN,)):
        try:
            with open_log(name) as path:
                explanation = explain(path, known, own)
        except UsageError as error:
            sys.stderr.write(f"ERROR: {display_line(str(error))}\n")
            code = EXIT_UNREADABLE
            continue
        if json:
            print_line(as_json(name, explanation))
        else:
            print_line(("\n" if place else "") + as_text("standard input" if name == STDIN else name, explanation))
    return code
