"""Explanation of a log from any run: neither the job nor its exit code is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_hetgpu.analysis.logs.lines import strip_controls
from pytest_hetgpu.analysis.logs.parse import ScanResult, failures, log_parsers, scan_log
from pytest_hetgpu.analysis.logs.program_lines import is_program_running
from pytest_hetgpu.analysis.logs.text_search import find_texts, read_lines
from pytest_hetgpu.config.known_failures.entries import HarmlessText, KnownFailures
from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule
from pytest_hetgpu.model.failure import KnownFailure, Signature
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of one log: `outcome` and, for a failure, its `signature` and the `others` in the log.

    `known` are the entries that match the signature, the best established first. `noise` are harmless messages that
    look like failures, each with the line of its first match. `failed` lists parsers that raised an exception.
    """

    outcome: Kind
    signature: Signature | None = None
    others: tuple[Signature, ...] = ()
    known: tuple[KnownFailure, ...] = ()
    noise: tuple[HarmlessText, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    exits: tuple[RankExit, ...] = ()
    lines: int = 0
    failed: tuple[str, ...] = ()


def explain(log: Path, knowledge: KnownFailures, own: Sequence[MatchRule] = ()) -> Explanation:
    """Explain the log in the file `log`, also by rules of the user. Raise OSError if it cannot be read."""
    result = scan_log(log, parsers=log_parsers(own))
    found = _failures(log, result)
    texts = find_texts(log, knowledge.texts if found else knowledge.harmless_texts)
    common = Explanation(
        outcome=found[0].kind if found else _without_failure(result),
        noise=tuple(_quoted(log, noise) for noise in knowledge.harmless_texts_in(texts)),
        versions=result.versions,
        exits=result.exits,
        lines=result.lines,
        failed=result.failed,
    )
    if not found:
        return common
    words = replace(found[0], primary_line=strip_controls(found[0].primary_line))
    known = knowledge.known_causes(words, texts, result.versions, others=found[1:])
    return replace(common, signature=found[0], others=found[1:], known=known)


def _quoted(log: Path, noise: HarmlessText) -> HarmlessText:
    """Return the noise entry with the text of its line."""
    return next((noise.quoted(line.text) for line in read_lines(log, noise.line, noise.line)), noise)


def _without_failure(result: ScanResult) -> Kind:
    ran = bool(result.records.hellos or is_program_running((*result.head, *result.tail)))
    return Kind.PASSED if ran else Kind.UNKNOWN


def _failures(log: Path, result: ScanResult) -> tuple[Signature, ...]:
    """Return the failures in a log, the most telling first; none if the run survived everything that was matched."""
    fatal = [match for match in result.matches if match.fatal]
    lost = [match for match in result.matches if not match.fatal and not result.survived(match)]
    if not fatal and not lost:
        return ()
    return failures(log, result, result.matches if fatal else lost)
