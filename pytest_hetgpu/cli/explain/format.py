"""Formats an explanation as JSON and as text for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_hetgpu.analysis.explain import Explanation
from pytest_hetgpu.analysis.logs.lines import strip_controls
from pytest_hetgpu.analysis.logs.success import Success
from pytest_hetgpu.config.known_failures.entries import HarmlessText
from pytest_hetgpu.model.failure import KnownFailure, Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.store.text import clean, printable, printable_json

Json = dict[str, Any]

WIDTH = 120
_MOST = 12
_FEWEST_IN_A_RANGE = 3

# Marks of text direction: valid in XML, but a terminal obeys them.
_DIRECTIONS = lazy("[\u061c\u200e\u200f]")


def as_json(file: str, explanation: Explanation) -> str:
    """Format one line of JSON. Fields of a failure are null if the log lacks them, and for a run that was fine."""
    signature = explanation.signature
    fields: Json = {"file": file, "outcome": explanation.outcome.value, **_signature(signature)}
    fields |= {
        "versions": dict(explanation.versions),
        "known": [_entry(entry) for entry in explanation.known],
        "others": [{"outcome": other.kind.value, **_signature(other)} for other in explanation.others],
        "exits": [_exit(ended) for ended in explanation.exits],
        "harmless": [{"id": noise.entry.id, "line": noise.line, "quote": noise.quote} for noise in explanation.noise],
        "lines": explanation.lines,
        "failed": list(explanation.failed),
        "success": _success(explanation.success),
        "survived": [{"outcome": other.kind.value, **_signature(other)} for other in explanation.survived],
        "missing": explanation.missing or None,
    }
    return printable_json(json.dumps(fields))


def _success(success: Success | None) -> Json | None:
    if success is None:
        return None
    return {"proof": success.proof.value, "line": success.line, "quote": success.quote}


def _signature(signature: Signature | None) -> Json:
    names = ("signal", "detail", "library", "function", "entry_point", "primary_line", "line", "key")
    fields: Json = {name: getattr(signature, name, None) for name in names}
    return fields | {
        "hosts": list(signature.hosts) if signature else [],
        "ranks": list(signature.ranks) if signature else [],
    }


def _entry(entry: KnownFailure) -> Json:
    return {
        "id": entry.id,
        "title": entry.title,
        "cause": entry.cause,
        "fix": entry.fix or None,
        "settings": {kind: dict(values) for kind, values in entry.settings.items()},
        "url": entry.url,
        "links": list(entry.links),
        "status": entry.status,
        "fixed_in": entry.fixed_in,
        "certainty": entry.certainty,
        "unproven": list(entry.unproven),
    }


def _exit(ended: RankExit) -> Json:
    return {"rank": ended.rank, "signal": ended.signal, "code": ended.code, "aborted": ended.aborted}


def as_text(file: str, explanation: Explanation) -> str:
    """Format some lines for a person: failure, place, quoted line, known failures, other failures."""
    return "\n".join(map(display_line, _lines(file, explanation)))


def display_line(text: str) -> str:
    """Return a text as one line without anything that a terminal or a CI server would obey.

    All output but JSON passes through here.
    """
    return printable(_DIRECTIONS.sub("", clean(text)).replace("\n", " "))


def _lines(file: str, explanation: Explanation) -> Iterator[str]:
    signature = explanation.signature
    if signature is None:
        yield from _without_failure(file, explanation)
    else:
        yield f"{file}: {explanation.outcome.value} {signature.key}"
        yield from _failure(signature)
        for entry in explanation.known:
            yield from _known(entry)
        yield from _others(explanation.others)
    yield from _noise(explanation.noise)
    if signature is not None:
        yield from _versions(explanation)
    yield from _parser_error_lines(explanation)


def _without_failure(file: str, explanation: Explanation) -> Iterator[str]:
    success = explanation.success
    if success is None:
        found = f"of its {explanation.lines} lines {explanation.missing}"
        yield from _wrap(f"{file}: {explanation.outcome.value}: {found}", "")
    else:
        yield f"{file}: {explanation.outcome.value}, by its {success.proof.value}"
        yield from _wrap(f"line {success.line}: {success.quote}", "  ", whole=True)
    for other in explanation.survived[:_MOST]:
        yield from _wrap(f"survived line {other.line}: {other.kind.value} {other.key}", "  ")


def _failure(signature: Signature) -> Iterator[str]:
    yield from _wrap(f"line {signature.line}: {signature.primary_line}", "  ", whole=True)
    frame = "!".join(filter(None, (signature.library, signature.function)))
    where = (
        frame and f"in {frame}",
        signature.entry_point and f"under {signature.entry_point}",
        signature.ranks and f"rank{'s' * (len(signature.ranks) > 1)} {_ranges(signature.ranks)}",
        signature.hosts and f"on {_first_items(signature.hosts)}",
    )
    if any(where):
        yield f"  {', '.join(str(part) for part in where if part)}"
    if signature.detail and signature.detail not in strip_controls(signature.primary_line):
        yield from _wrap(signature.detail, "  ")


def _known(entry: KnownFailure) -> Iterator[str]:
    label = entry.certainty if entry.unproven else f"known ({entry.status})"
    yield from _wrap(f"{label}: {entry.title} [{entry.id}]", "  ")
    yield from _wrap(entry.cause, "    ")
    if entry.unproven:
        yield from _wrap(f"proven if {' and '.join(entry.unproven)}", "    ")
    if entry.fix:
        yield from _wrap(f"cure: {entry.fix}", "    ")
    yield from (f"      {setting}" for setting in entry.typed)
    if entry.fixed_in:
        yield f"    fixed in {entry.fixed_in}"
    yield from (f"    {link}" for link in entry.links)


def _others(others: Sequence[Signature]) -> Iterator[str]:
    for other in others[:_MOST]:
        yield from _wrap(f"also in line {other.line}: {other.kind.value} {other.key}", "  ")
    if len(others) > _MOST:
        yield f"  and {len(others) - _MOST} more"


def _noise(noise: Sequence[HarmlessText]) -> Iterator[str]:
    for one in noise:
        yield from _wrap(f"ignore line {one.line} ({one.quote}): {one.entry.known.title}", "  ")


def _versions(explanation: Explanation) -> Iterator[str]:
    if explanation.versions:
        yield "  " + ", ".join(f"{name} {version}" for name, version in explanation.versions.items())


def _parser_error_lines(explanation: Explanation) -> Iterator[str]:
    for mistake in explanation.failed:
        yield from _wrap(f"a mistake of hetgpu's, please report it with this log: {mistake}", "  ")


def _wrap(text: str, indent: str, *, whole: bool = False) -> Iterator[str]:
    """Yield the lines of a text; cut a quoted line instead of breaking it."""
    line = display_line(text)
    if whole:
        yield indent + (line if len(line) <= WIDTH * 3 else f"{line[: WIDTH * 3]} ...")
    else:
        import textwrap

        yield from textwrap.wrap(line, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")


def _ranges(ranks: Sequence[int]) -> str:
    """Format `0, 1, 4-499`: ranges of consecutive ranks, and the number of ranks left out."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts = [part for first, last in runs[:_MOST] for part in _format_range(first, last)]
    left = sum(last - first + 1 for first, last in runs[_MOST:])
    return ", ".join(parts) + (f" and {left} more" if left else "")


def _format_range(first: int, last: int) -> Sequence[str]:
    whole = last - first + 1 >= _FEWEST_IN_A_RANGE
    return (f"{first}-{last}",) if whole else tuple(map(str, range(first, last + 1)))


def _first_items(items: Sequence[object]) -> str:
    return ", ".join(map(str, items[:_MOST])) + (f" and {len(items) - _MOST} more" if len(items) > _MOST else "")
