"""What a log says of its run, whoever made it: nothing is known of the job, its exit code least of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_hetgpu.analysis.logs.lines import plain
from pytest_hetgpu.analysis.logs.passages import lines, passages
from pytest_hetgpu.analysis.logs.signs import is_run
from pytest_hetgpu.analysis.logs.transcript import Heard, failures, listen
from pytest_hetgpu.config.known_failures.entries import HarmlessText, KnownFailures
from pytest_hetgpu.model.failure import KnownFailure, Signature
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one log says: `outcome` and, for a failure, the `signature` that explains it and the `others` in the log.

    `known` are the entries that fit the signature, the best established first; `noise` are frightening texts that mean
    nothing, with the first line of each. `failed` tells of mistakes of our own in reading it.
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


def explain(log: Path, knowledge: KnownFailures) -> Explanation:
    """What the log in the file `log` says. Raises OSError where it cannot be read."""
    heard = listen(log)
    found = _failures(log, heard)
    texts = passages(log, knowledge.texts if found else knowledge.harmless_texts)
    common = Explanation(
        outcome=found[0].kind if found else _without_failure(heard),
        noise=tuple(_quoted(log, noise) for noise in knowledge.harmless_texts_in(texts)),
        versions=heard.versions,
        exits=heard.exits,
        lines=heard.lines,
        failed=heard.failed,
    )
    if not found:
        return common
    words = replace(found[0], primary_line=plain(found[0].primary_line))
    known = knowledge.known_causes(words, texts, heard.versions, others=found[1:])
    return replace(common, signature=found[0], others=found[1:], known=known)


def _quoted(log: Path, noise: HarmlessText) -> HarmlessText:
    """The noise with what its line says."""
    return next((noise.quoted(line.text) for line in lines(log, noise.line, noise.line)), noise)


def _without_failure(heard: Heard) -> Kind:
    ran = bool(heard.records.hellos or is_run((*heard.head, *heard.tail)))
    return Kind.PASSED if ran else Kind.UNKNOWN


def _failures(log: Path, heard: Heard) -> tuple[Signature, ...]:
    """The failures in a log, the most telling first; none where all that was read is what runs survive."""
    certain = [reading for reading in heard.readings if reading.certain]
    lost = [reading for reading in heard.readings if not reading.certain and not heard.survived(reading)]
    if not certain and not lost:
        return ()
    return failures(log, heard, heard.readings if certain else lost)
