"""An outcome survives the way through flat pairs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.model.failure import KnownFailure, Signature
from pytest_hetgpu.model.job import Expectation
from pytest_hetgpu.model.outcome import LinkBandwidth, Outcome
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.transport_classes import PATHS, UNKNOWN
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.properties import from_properties, to_properties
from tests.reporting.report_samples import CRASHED, ISSUE, KEY, KNOWN, PASSED

WORDS = st.from_regex(r"[A-Za-z0-9_.!@+;/-]{1,30}( [a-z]{1,10}){0,3}", fullmatch=True)
NUMBERS = st.floats(allow_nan=False)
POINTS = st.builds(MessagePoint, st.integers(0, 1 << 40), st.sampled_from(["float32", "int8", "bfloat16"]))
MEASUREMENTS = st.builds(
    Measurement, st.sampled_from(["busbw", "algbw", "latency"]), NUMBERS, st.just("GB/s"), POINTS, st.just(2)
)
OUTCOMES = st.builds(
    Outcome,
    kind=st.sampled_from(Kind),
    verdict=st.sampled_from(Verdict),
    why=WORDS,
    signature=st.none() | st.builds(Signature, st.sampled_from(Kind), WORDS, WORDS, st.just(1)),
    expectation=st.none() | st.builds(Expectation, st.just((Kind.CRASH,)), issue=st.none() | WORDS),
    measurements=st.lists(MEASUREMENTS, unique_by=lambda measurement: measurement.name).map(tuple),
    transports=st.lists(WORDS).map(tuple),
    carried=st.dictionaries(st.sampled_from((*PATHS, UNKNOWN)), st.lists(WORDS, min_size=1).map(tuple)),
    stack=WORDS,
    seconds=NUMBERS,
)


@given(OUTCOMES, WORDS, WORDS)
def test_round_trip(outcome: Outcome, label: str, matrix: str) -> None:
    pairs = to_properties(outcome, label=label, matrix=matrix)
    found = from_properties(pairs)
    assert found is not None
    assert (found.scenario, found.matrix, found.kind, found.verdict) == (label, matrix, outcome.kind, outcome.verdict)
    assert (found.why, found.stack, found.seconds) == (outcome.why, outcome.stack, outcome.seconds)
    assert found.signature == (outcome.signature.key if outcome.signature else "")
    assert found.issue == ((outcome.expectation.issue if outcome.expectation else None) or "")
    assert found.transports == outcome.transports
    assert found.carried == outcome.carried
    assert found.measurements == {item.name: item.value for item in outcome.measurements}


def test_possible_causes_are_apart_from_known_ones() -> None:
    sure = KnownFailure("sure", "title", "cause")
    both = replace(KNOWN, known=(sure, replace(sure, id="maybe", unproven=("x",))))
    pairs = dict(to_properties(both, label="c", matrix="m"))
    assert (pairs["known"], pairs["possible"]) == ("sure", "maybe")


def test_names_and_units_are_those_of_the_reports() -> None:
    outcome = replace(KNOWN, measurements=PASSED.measurements, transports=("tcp", "sm"))
    assert to_properties(outcome, label="c", matrix="m") == [
        ("outcome", "crash"),
        ("verdict", "known"),
        ("why", "rank 0 died of SIGSEGV"),
        ("scenario", "c"),
        ("matrix", "m"),
        ("signature", KEY),
        ("issue", ISSUE),
        ("stack", "Open MPI v5.0.11"),
        ("transport_seen", "tcp,sm"),
        ("seconds", 3.25),
        ("busbw[1048576,float32]", 1.25),
        ("latency[8,float32]", 15.5),
        ("units", "busbw=GB/s; latency=us"),
    ]


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_hostile_text_becomes_plain_values(text: str) -> None:
    hostile = replace(CRASHED, why=text, stack=text, transports=(text,))
    for name, value in to_properties(hostile, label="c", matrix="m"):
        assert type(name) is str
        assert type(value) in (str, int, float)
        str(value).encode("utf-8")
        assert str(value).isprintable() or not str(value).isascii()


def test_a_whole_number_of_seconds_is_still_a_float() -> None:
    pairs = to_properties(replace(PASSED, seconds=3), label="c", matrix="m")
    assert type(dict(pairs)["seconds"]) is float


def test_secrets_do_not_travel() -> None:
    pairs = to_properties(replace(CRASHED, why="HF_TOKEN=abc was refused"), label="c", matrix="m")
    assert dict(pairs)["why"] == "HF_TOKEN=[redacted] was refused"


def test_what_others_record_is_left_alone() -> None:
    pairs = to_properties(PASSED, label="c", matrix="m")
    foreign = [("owner", "me"), ("bytes[8]", "x"), ("notes[a,b]", object())]
    assert from_properties([*foreign, *pairs]) == from_properties(pairs)
    assert from_properties(foreign) is None
    assert from_properties([]) is None


@pytest.mark.parametrize(
    "change", [("outcome", "exploded"), ("verdict", "maybe"), ("seconds", "long"), ("busbw[8,f]", "x")]
)
def test_what_cannot_be_meant_is_named(change: tuple[str, str]) -> None:
    with pytest.raises(RecordError, match=rf"properties of the-cell: .*{change[1]}"):
        from_properties([*to_properties(PASSED, label="the-cell", matrix="m"), change])


def test_numbers_may_come_back_as_text() -> None:
    """As they do from an XML file."""
    pairs = [(name, str(value)) for name, value in to_properties(PASSED, label="c", matrix="m")]
    found = from_properties(pairs)
    assert found is not None
    assert math.isclose(found.measurements["busbw[1048576,float32]"], 1.25)


def test_the_wire_and_what_each_bandwidth_is_of_it() -> None:
    link = LinkBandwidth(2.5, "pump 1, 4 streams", ("node1", "node0"), 36.4, ("over loopback",))
    pairs = to_properties(replace(PASSED, wire=link), label="c", matrix="m")
    told = "pump 1, 4 streams, node1 to node0, round trip 36 us, over loopback"
    assert {"wire": 2.5, "wire_told": told, "of_wire[1048576,float32]": 0.5}.items() <= dict(pairs).items()
    found = from_properties([(name, str(value)) for name, value in pairs])
    assert found
    assert (found.link, found.link_text) == (2.5, told)
    assert set(found.measurements) == {item.name for item in PASSED.measurements}


def test_a_wire_that_is_not_known_says_why() -> None:
    pairs = dict(
        to_properties(replace(PASSED, wire=LinkBandwidth(why="node0 to node1: timed out")), label="c", matrix="m")
    )
    assert pairs["wire_told"] == "not known: node0 to node1: timed out"
    assert not {"wire", "of_wire[1048576,float32]"} & pairs.keys()


def test_a_foreign_tool_travels() -> None:
    pairs = to_properties(replace(PASSED, facts={"tool": "osu_bw 7.4"}), label="c", matrix="m")
    assert ("tool", "osu_bw 7.4") in pairs
    found = from_properties(pairs)
    assert found is not None
    assert found.tool == "osu_bw 7.4"
    assert "tool" not in dict(to_properties(PASSED, label="c", matrix="m"))


def test_what_carried_the_data_has_a_property_for_each_path() -> None:
    outcome = replace(PASSED, carried={"on-host": ("ucx/cma", "ucx/posix"), "off-host": ("ucx/tcp",)})
    pairs = dict(to_properties(outcome, label="c", matrix="m"))
    assert (pairs["carried_by[on-host]"], pairs["carried_by[off-host]"]) == ("ucx/cma,ucx/posix", "ucx/tcp")
