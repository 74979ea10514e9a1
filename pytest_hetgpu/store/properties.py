"""An Outcome as flat (name, value) pairs and back: what pytest's `user_properties` and JUnit's properties hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pytest_hetgpu.model import rank_outcome
from pytest_hetgpu.model.bandwidth_text import describe_link
from pytest_hetgpu.model.metrics import link_fraction
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.text import clean, one_line

Pair = tuple[str, str | int | float]

SHAKY = "passed at attempt "
_LIMIT = 1000
# `of_wire[...]` follows from what is there besides it.
_CARRIED = re.compile(r"carried_by\[([\w-]+)\]")
_MEASUREMENT = re.compile(r"(?!of_wire\[)\w+\[\d+,[^\[\]]*\]")


@dataclass(frozen=True, slots=True)
class CellPairs:
    """What the pairs of a cell say. `scenario` is its label, `signature` the key, `seconds` how long it ran.

    `tool` is a foreign program with its version. `carried` names what carried the data by path.

    `measurements` maps `busbw[SIZE,DTYPE]` (in place `busbw[SIZE,DTYPE,in]`) and `algbw[...]` to GB/s (1e9 B/s),
    `latency[...]` to microseconds. `wire` is in GB/s; `wire_told` says by whom, or why it is not known. `attempts` are
    all that were made; `flaky` says of a cell that failed and then passed how it had failed. `kept` says of a resumed
    run's cell when it was run.
    """

    scenario: str
    matrix: str
    kind: Kind
    verdict: Verdict
    why: str = ""
    signature: str = ""
    issue: str = ""
    stack: str = ""
    tool: str = ""
    transports: tuple[str, ...] = ()
    carried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    preflight: str = ""
    notes: str = ""
    seconds: float = 0.0
    measurements: Mapping[str, float] = field(default_factory=dict)
    wire: float | None = None
    wire_told: str = ""
    attempts: int = 1
    flaky: str = ""
    kept: str = ""


def to_pairs(outcome: Outcome, *, label: str, matrix: str) -> list[Pair]:
    """The outcome of the cell `label`, text in one line each and redacted; what is empty is left out."""
    issue = outcome.expectation.issue if outcome.expectation else None
    texts = {
        "outcome": outcome.kind.value,
        "verdict": outcome.verdict.value,
        "why": one_line(outcome.why, _LIMIT),
        "scenario": label,
        "matrix": matrix,
        "signature": one_line(outcome.signature.key, _LIMIT) if outcome.signature else "",
        "issue": one_line(issue, _LIMIT) if issue else "",
        "known": one_line(",".join(entry.id for entry in outcome.known), _LIMIT),
        "ranks": one_line(rank_outcome.describe(outcome.fates), _LIMIT),
        "stack": one_line(outcome.stack, _LIMIT),
        "tool": one_line(outcome.facts.get("tool", ""), _LIMIT),
        "preflight": one_line(" | ".join(outcome.concerns), _LIMIT),
        "notes": one_line(" | ".join(outcome.notes), _LIMIT),
        "transport_seen": ",".join(one_line(name, _LIMIT).replace(",", ";") for name in outcome.transports),
        **{
            f"carried_by[{path}]": ",".join(one_line(name, _LIMIT).replace(",", ";") for name in names)
            for path, names in outcome.carried.items()
        },
        "wire_told": one_line(describe_link(outcome.wire), _LIMIT) if outcome.wire else "",
        "flaky": one_line(flaky(outcome), _LIMIT),
        **{f"attempt_{number}": one_line(line, _LIMIT) for number, line in enumerate(before(outcome), 1)},
    }
    pairs: list[Pair] = [(name, text) for name, text in texts.items() if text]
    if outcome.attempts:
        pairs.append(("attempts", len(outcome.attempts) + 1))
    pairs.append(("seconds", float(outcome.seconds)))
    pairs += ((clean(item.name), float(item.value)) for item in outcome.measurements)
    return [*pairs, *_of_wire(outcome)]


def before(outcome: Outcome) -> Iterator[str]:
    """A line for each attempt that failed before the last one: `network failure KEY: why (LOG)`."""
    for one in outcome.attempts:
        why = one.why if one.why.startswith(one.key) else f"{one.key}: {one.why}"
        yield f"{one.kind.value.replace('_', ' ')}: {why} ({one.log})"


def flaky(outcome: Outcome) -> str:
    """`passed at attempt 2, after network failure`; "" for a cell that is not flaky."""
    if not outcome.flaky:
        return ""
    kinds = dict.fromkeys(one.kind.value.replace("_", " ") for one in outcome.attempts)
    return f"{SHAKY}{len(outcome.attempts) + 1}, after {' and '.join(kinds)}"


def _of_wire(outcome: Outcome) -> Iterator[Pair]:
    """The limit between the nodes, and each bus bandwidth as a fraction of it: `of_wire[SIZE,DTYPE]`."""
    if outcome.wire and outcome.wire.gbs:
        yield "wire", float(outcome.wire.gbs)
    for item in outcome.measurements:
        fraction = link_fraction(item, outcome.wire)
        if fraction is not None:
            yield clean(f"of_wire[{item.point}]"), fraction


def from_pairs(pairs: Iterable[tuple[str, object]]) -> CellPairs | None:
    """What `to_pairs` was told, other people's properties ignored; None if these are not a cell's.

    Raises RecordError for an outcome, verdict or number that cannot be one.
    """
    found = dict(pairs)
    if not {"outcome", "verdict", "scenario"} <= found.keys():
        return None
    text = {name: str(value) for name, value in found.items()}
    try:
        return CellPairs(
            scenario=text["scenario"],
            matrix=text.get("matrix", ""),
            kind=Kind(text["outcome"]),
            verdict=Verdict(text["verdict"]),
            why=text.get("why", ""),
            signature=text.get("signature", ""),
            issue=text.get("issue", ""),
            stack=text.get("stack", ""),
            tool=text.get("tool", ""),
            transports=tuple(filter(None, text.get("transport_seen", "").split(","))),
            carried={path[1]: tuple(text[name].split(",")) for name in text if (path := _CARRIED.fullmatch(name))},
            preflight=text.get("preflight", ""),
            notes=text.get("notes", ""),
            seconds=float(text.get("seconds", "0")),
            measurements={name: float(text[name]) for name in text if _MEASUREMENT.fullmatch(name)},
            wire=float(text["wire"]) if "wire" in text else None,
            wire_told=text.get("wire_told", ""),
            attempts=int(text.get("attempts", "1")),
            flaky=text.get("flaky", ""),
            kept=text.get("kept", ""),
        )
    except ValueError as error:
        raise RecordError(f"properties of {text['scenario']}: {error}") from None
