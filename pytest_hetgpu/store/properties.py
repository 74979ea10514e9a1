"""Converts an Outcome to flat (name, value) pairs and back, for pytest's `user_properties` and JUnit's properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pytest_hetgpu.model import rank_outcome
from pytest_hetgpu.model.bandwidth_text import describe_link
from pytest_hetgpu.model.metrics import link_fraction
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.quantities import split_unit, stored_unit
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.text import clean, one_line

Property = tuple[str, str | int | float]

FLAKY_PREFIX = "passed at attempt "
_LIMIT = 1000
# `of_wire[...]` follows from the other properties.
_CARRIED = re.compile(r"carried_by\[([\w-]+)\]")
_NUMBER = re.compile(r"(\w+)\[(\d{1,18}),([^,\[\]]*)(?:,([^,\[\]]*))?\]")
# Files of earlier releases lack the property `units`.
_UNITS = {
    **dict.fromkeys(("latency", "overhead"), "us"),
    **dict.fromkeys(("busbw", "algbw", "bandwidth", "bidirectional_bandwidth", "aggregate_bandwidth"), "GB/s"),
    "message_rate": "1/s",
}
_MEASUREMENT = re.compile(r"(?!of_wire\[)\w+\[\d+,[^\[\]]*\]")


@dataclass(frozen=True, slots=True)
class CellProperties:
    """The properties of a cell."""

    #: the label of the cell
    scenario: str
    matrix: str
    kind: Kind
    verdict: Verdict
    why: str = ""
    #: the key
    signature: str = ""
    issue: str = ""
    stack: str = ""
    #: an external program with its version
    tool: str = ""
    transports: tuple[str, ...] = ()
    #: the components that carried the data, by path
    carried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    preflight: str = ""
    notes: str = ""
    #: the duration of the command
    seconds: float = 0.0
    #: `busbw[SIZE,DTYPE]` (in place `busbw[SIZE,DTYPE,in]`) and `algbw[...]` in GB/s (1e9 B/s), `latency[...]` in us
    measurements: Mapping[str, float] = field(default_factory=dict)
    #: unit and stated direction of each metric: `busbw=GB/s; energy=Ry (lower is better)`
    units: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    #: the bandwidth limit in GB/s
    link: float | None = None
    #: the source of `link`, or the reason why it is unknown
    link_text: str = ""
    #: all attempts, the last one included
    attempts: int = 1
    #: how a cell failed before it passed
    flaky: str = ""
    #: when a cell of a resumed run was run
    kept: str = ""
    #: the result of the program's own tests
    tests: str = ""

    @property
    def numbers(self) -> tuple[Measurement, ...]:
        """Return the measurements; properties do not hold their ranks."""
        found = ((name, _NUMBER.fullmatch(name)) for name in self.measurements)
        return tuple(self._number(self.measurements[name], match) for name, match in found if match)

    def _number(self, value: float, match: re.Match[str]) -> Measurement:
        metric, size, dtype, place = match.groups()
        unit, better = self.units.get(metric, (_UNITS.get(metric, ""), ""))
        return Measurement(metric, value, unit, MessagePoint(int(size), dtype, place or ""), ranks=0, better=better)


def to_properties(outcome: Outcome, *, label: str, matrix: str) -> list[Property]:
    """Convert the outcome of the cell `label` to pairs. Text is one redacted line each; empty values are left out."""
    issue = outcome.expectation.issue if outcome.expectation else None
    texts = {
        "outcome": outcome.kind.value,
        "verdict": outcome.verdict.value,
        "why": one_line(outcome.why, _LIMIT),
        "scenario": clean(label),
        "matrix": clean(matrix),
        "signature": one_line(outcome.signature.key, _LIMIT) if outcome.signature else "",
        "issue": one_line(issue, _LIMIT) if issue else "",
        "known": one_line(",".join(entry.id for entry in outcome.known if not entry.unproven), _LIMIT),
        "possible": one_line(",".join(entry.id for entry in outcome.known if entry.unproven), _LIMIT),
        "ranks": one_line(rank_outcome.describe(outcome.rank_outcomes), _LIMIT),
        "stack": one_line(outcome.stack, _LIMIT),
        "tool": one_line(outcome.facts.get("tool", ""), _LIMIT),
        "tests": one_line(str(outcome.suite), _LIMIT) if outcome.suite else "",
        "tests_failed": one_line(", ".join(outcome.suite.failed), _LIMIT) if outcome.suite else "",
        "preflight": one_line(" | ".join(outcome.concerns), _LIMIT),
        "notes": one_line(" | ".join(outcome.notes), _LIMIT),
        "transport_seen": ",".join(one_line(name, _LIMIT).replace(",", ";") for name in outcome.transports),
        **{
            f"carried_by[{path}]": ",".join(one_line(name, _LIMIT).replace(",", ";") for name in names)
            for path, names in outcome.carried.items()
        },
        "wire_told": one_line(describe_link(outcome.wire), _LIMIT) if outcome.wire else "",
        "flaky": one_line(describe_flaky(outcome), _LIMIT),
        **{f"attempt_{number}": one_line(line, _LIMIT) for number, line in enumerate(attempt_lines(outcome), 1)},
    }
    pairs: list[Property] = [(one_line(name), text) for name, text in texts.items() if text]
    if outcome.attempts:
        pairs.append(("attempts", len(outcome.attempts) + 1))
    pairs.append(("seconds", float(outcome.seconds)))
    pairs += ((one_line(item.name), float(item.value)) for item in outcome.measurements)
    if units := dict.fromkeys(map(_unit, outcome.measurements)):
        pairs.append(("units", one_line("; ".join(units), _LIMIT)))
    return [*pairs, *_bandwidth_properties(outcome)]


def _unit(item: Measurement) -> str:
    return f"{clean(item.metric)}={clean(stored_unit(item)).replace(';', ',')}"


def _units(text: str) -> dict[str, tuple[str, str]]:
    pairs = (one.partition("=") for one in text.split("; "))
    return {metric: split_unit(unit) for metric, equals, unit in pairs if equals}


def attempt_lines(outcome: Outcome) -> Iterator[str]:
    """Yield one line per failed attempt before the last one: `network failure KEY: why (LOG)`."""
    for one in outcome.attempts:
        why = one.why if one.why.startswith(one.key) else f"{one.key}: {one.why}"
        yield f"{one.kind.value.replace('_', ' ')}: {why} ({one.log})"


def describe_flaky(outcome: Outcome) -> str:
    """Format `passed at attempt 2, after network failure`; return "" for a cell that is not flaky."""
    if not outcome.flaky:
        return ""
    kinds = dict.fromkeys(one.kind.value.replace("_", " ") for one in outcome.attempts)
    return f"{FLAKY_PREFIX}{len(outcome.attempts) + 1}, after {' and '.join(kinds)}"


def _bandwidth_properties(outcome: Outcome) -> Iterator[Property]:
    """Yield the bandwidth limit between the nodes, and each bus bandwidth as a fraction of it."""
    if outcome.wire and outcome.wire.gbs:
        yield "wire", float(outcome.wire.gbs)
    for item in outcome.measurements:
        fraction = link_fraction(item, outcome.wire)
        if fraction is not None:
            yield one_line(f"of_wire[{item.point}]"), fraction


def from_properties(pairs: Iterable[tuple[str, object]]) -> CellProperties | None:
    """Read pairs that `to_properties` made; ignore others. Return None if they are not the pairs of a cell.

    Raises RecordError for an invalid outcome, verdict or number.
    """
    found = dict(pairs)
    if not {"outcome", "verdict", "scenario"} <= found.keys():
        return None
    text = {name: str(value) for name, value in found.items()}
    try:
        return CellProperties(
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
            units=_units(text.get("units", "")),
            link=float(text["wire"]) if "wire" in text else None,
            link_text=text.get("wire_told", ""),
            attempts=int(text.get("attempts", "1")),
            flaky=text.get("flaky", ""),
            kept=text.get("kept", ""),
            tests=text.get("tests", ""),
        )
    except ValueError as error:
        raise RecordError(f"properties of {text['scenario']}: {error}") from None
