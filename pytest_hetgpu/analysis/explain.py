"""Explanation of a log from any run: neither the job nor its exit code is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_hetgpu.analysis.logs.lines import strip_controls
from pytest_hetgpu.analysis.logs.log_facts import log_facts, separate
from pytest_hetgpu.analysis.logs.parse import failures, log_parsers, scan_log
from pytest_hetgpu.analysis.logs.program_lines import is_program_running
from pytest_hetgpu.analysis.logs.scan_result import ScanResult
from pytest_hetgpu.analysis.logs.success import Proof, Success
from pytest_hetgpu.analysis.logs.text_search import find_texts
from pytest_hetgpu.analysis.survived import settled
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
    `success` is the sign by which a run passed, `survived` are failures that it got over. `missing` names what would
    decide an unknown outcome.
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
    success: Success | None = None
    survived: tuple[Signature, ...] = ()
    missing: str = ""


def explain(log: Path, knowledge: KnownFailures, own: Sequence[MatchRule] = ()) -> Explanation:
    """Explain the log in the file `log`, also by rules of the user. Raise OSError if it cannot be read."""
    result = scan_log(log, parsers=log_parsers(own), texts=knowledge.texts)
    found, over = _failures(log, result)
    texts = find_texts(log, knowledge.texts if found else knowledge.harmless_texts, result.parts)
    common = Explanation(
        outcome=Kind.UNKNOWN,
        noise=tuple(_quoted(log, noise, result) for noise in knowledge.harmless_texts_in(texts)),
        versions=result.versions,
        exits=result.exits,
        lines=result.lines,
        failed=result.failed,
        survived=over,
    )
    if not found:
        from pytest_hetgpu.analysis.conclusion import conclude

        decision = conclude(result.course(log), result.matches, running=_is_run(result), survived=bool(over))
        return replace(common, outcome=decision.kind, success=decision.success, missing=decision.missing)
    words = replace(found[0], primary_line=strip_controls(found[0].primary_line))
    wanted = knowledge.facts_in_question(words, texts, found[1:])
    facts = {**log_facts(log, wanted), **separate(result.versions)}
    known = knowledge.known_causes(words, texts, facts, others=found[1:])
    return replace(common, outcome=found[0].kind, signature=found[0], others=found[1:], known=known)


def _quoted(log: Path, noise: HarmlessText, result: ScanResult) -> HarmlessText:
    """Return the noise entry with the text of its line."""
    return next((noise.quoted(line.text) for line in result.reader(log)(noise.line, noise.line)), noise)


def _is_run(result: ScanResult) -> bool:
    """Return whether the log is of a run: its ranks or its launcher show, or it shows several results."""
    results = sum(sign.proof is not Proof.STATUS for sign in result.signs)
    return bool(result.records.hellos or results > 1 or is_program_running(result.ends))


def _failures(log: Path, result: ScanResult) -> tuple[tuple[Signature, ...], tuple[Signature, ...]]:
    """Return the failures in a log, the most telling first, and those that the run got over."""
    counted, over = settled(result.matches, result.course(log))
    survived = failures(log, result, over) if over else ()
    fatal = [match for match in counted if match.fatal]
    lost = [match for match in counted if not match.fatal and not result.survived(match)]
    if result.exit_status:
        return failures(log, result, counted), survived
    if not fatal and not lost:
        return (), survived
    return failures(log, result, counted if fatal else lost), survived
