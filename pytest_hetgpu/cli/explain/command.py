"""`hetgpu explain`: reads logs, prints explanations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from pytest_hetgpu.analysis.explain import Explanation, explain
from pytest_hetgpu.cli.explain.format import as_json, as_text, display_line
from pytest_hetgpu.cli.explain.log_input import STDIN, open_logs
from pytest_hetgpu.config.known_failures.entries import KnownFailures
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.config.signature_rules.load import signature_rules
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule

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
    code, first = 0, True
    for name, opened in chain.from_iterable(map(open_logs, logs or (STDIN,))):
        try:
            explanation = _explain(name, opened, known, own)
        except UsageError as error:
            sys.stderr.write(f"ERROR: {display_line(str(error))}\n")
            code = EXIT_UNREADABLE
            continue
        if json:
            print_line(as_json(name, explanation))
        else:
            shown = "standard input" if name == STDIN else name
            print_line(("" if first else "\n") + as_text(shown, explanation))
        first = False
    return code


def _explain(name: str, opened: Path | UsageError, known: KnownFailures, own: Sequence[MatchRule]) -> Explanation:
    """Explain a log. Raise UsageError if it cannot be read."""
    if isinstance(opened, UsageError):
        raise opened
    try:
        return explain(opened, known, own)
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror or error}") from None
