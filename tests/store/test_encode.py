"""Dataclasses become JSON and come back; what does not fit is said by its place, and never as a traceback."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Evidence, Outcome, ProgramOutput, RunResult
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, ExitMeaning, Quantity
from pytest_hetgpu.model.records import Hello, MessagePoint, Row
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.encode import RecordError, from_json, to_json
from tests.reporting.report_samples import CHANGED, CRASHED, FIXED, KNOWN, PASSED, job, result, scenario

EVIDENCE = Evidence(
    hellos={1: Hello(1, 2, "vm", 7, "Open MPI v5", "/x/libmpi.so.40")},
    rows=(Row("allreduce", MessagePoint(8, "float32"), 2, 20, 1e-5),),
    checks={0: {MessagePoint(8, "float32"): 0, MessagePoint(16, "int32"): 3}},
    done=frozenset({0, 1}),
    program_output=ProgramOutput(
        BenchmarkResult(
            "osu",
            "7.4",
            (BenchmarkRow("allreduce", MessagePoint(8, "int8"), 2, {"latency": Quantity(1e-6, "s")}, wrong=1),),
        ),
        "osu_allreduce 7.4",
        exited=ExitMeaning(Kind.WRONG_RESULT, "exit code 1"),
    ),
)

TEXT = st.text()
OUTCOMES = st.builds(
    Outcome,
    kind=st.sampled_from(Kind),
    verdict=st.sampled_from(Verdict),
    why=TEXT,
    transports=st.lists(TEXT).map(tuple),
    seconds=st.floats(allow_nan=False),
)


def through_text(value: object) -> Any:
    return json.loads(json.dumps(to_json(value), allow_nan=False))


@pytest.mark.parametrize(
    "value",
    [PASSED, CRASHED, KNOWN, CHANGED, FIXED, job(), result(), result(returncode=None), scenario(), EVIDENCE],
    ids=lambda value: type(value).__name__,
)
def test_what_is_written_is_read_back(value: object) -> None:
    assert from_json(type(value), through_text(value)) == value


@given(OUTCOMES)
def test_any_outcome_is_read_back(outcome: Outcome) -> None:
    assert from_json(Outcome, through_text(outcome)) == outcome


def test_an_outcome_is_plain_to_read() -> None:
    data = to_json(KNOWN)
    assert list(data) == [item.name for item in fields(Outcome)]
    assert data["kind"] == "crash"
    assert data["signature"]["ranks"] == [0]
    assert data["expectation"]["remedy"] == {"env": {"UCX_ROCM_COPY_D2H_THRESH": "0"}}


def test_sets_are_written_in_order() -> None:
    assert to_json(job())["nodes"][1]["hardware"]["capabilities"] == ["no-large-bar", "x"]


def test_keys_that_json_has_no_name_for_are_written_as_pairs() -> None:
    data = to_json(EVIDENCE)
    assert list(data["hellos"]) == ["1"]
    assert data["checks"]["0"][1] == [{"size": 16, "dtype": "int32", "place": ""}, 3]


def test_a_field_of_a_newer_version_is_ignored() -> None:
    data = to_json(CRASHED)
    data["mood"] = "bad"
    data["signature"]["colour"] = ["red"]
    assert from_json(Outcome, data) == CRASHED


def test_a_missing_field_takes_its_default() -> None:
    assert from_json(Outcome, {"kind": "hang", "verdict": "new"}) == Outcome(Kind.HANG, Verdict.NEW)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kind": "exploded"}, r"Outcome\.kind: wanted one of passed, .*, unknown, found 'exploded'"),
        ({"kind": None}, r"Outcome\.kind: wanted one of .* found None"),
        ({"why": 3}, r"Outcome\.why: wanted text, found 3"),
        ({"seconds": "3"}, r"Outcome\.seconds: wanted a number, found '3'"),
        ({"seconds": True}, r"Outcome\.seconds: wanted a number, found True"),
        ({"seconds": 10**400}, r"Outcome\.seconds: wanted a number, found 1000"),
        ({"transports": "tcp"}, r"Outcome\.transports: wanted a list, found 'tcp'"),
        ({"transports": ["tcp", 1]}, r"Outcome\.transports\[1\]: wanted text, found 1"),
        ({"signature": []}, r"Outcome\.signature: wanted an object, found \[\]"),
        ({"signature": {"kind": "crash"}}, r"Outcome\.signature: wanted a field 'key', found nothing"),
        ({"expectation": {"kinds": [], "remedy": {"env": {"A": 1}}}}, r"\.remedy\['env'\]\['A'\]: wanted text"),
        ({"measurements": [{"metric": "x"}]}, r"Outcome\.measurements\[0\]: wanted a field 'value'"),
    ],
)
def test_a_wrong_value_is_named_by_its_place(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RecordError, match=complaint):
        from_json(Outcome, {**to_json(PASSED), **change})


def test_the_error_is_one_of_ours() -> None:
    assert issubclass(RecordError, HetgpuError)


@pytest.mark.parametrize(
    ("checks", "complaint"),
    [
        ({"zero": []}, r"checks\['zero'\]: wanted an integer"),
        ({"0": [[{"size": 8, "dtype": "f"}]]}, r"checks\['0'\]\[0\]: wanted a list of 2"),
    ],
)
def test_wrong_keys_are_named(checks: Any, complaint: str) -> None:
    with pytest.raises(RecordError, match=complaint):
        from_json(Evidence, {"checks": checks})


def test_a_huge_wrong_value_is_shown_in_part() -> None:
    with pytest.raises(RecordError) as error:
        from_json(Outcome, {**to_json(PASSED), "seconds": "x" * 1_000_000})
    assert len(str(error.value)) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["kind", "verdict", "signature", "when"]), inner),
)


@given(JSON, st.sampled_from([Outcome, Job, RunResult, Scenario]))
def test_any_json_is_read_or_refused(data: Any, cls: type) -> None:
    try:
        made: Any = from_json(cls, data)
    except RecordError as error:
        made = str(error)
    assert isinstance(made, cls) or made.startswith(cls.__name__)


@pytest.mark.parametrize(("number", "written"), [(math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, "NaN")])
def test_numbers_that_json_lacks_are_words(number: float, written: str) -> None:
    data = through_text(replace(PASSED, seconds=number))
    assert data["seconds"] == written
    assert str(from_json(Outcome, data).seconds) == str(number)


def test_half_a_surrogate_pair_survives() -> None:
    odd = replace(result(), argv=("caf\udce9",))
    assert from_json(RunResult, through_text(odd)) == odd


@dataclass(frozen=True)
class Odd:
    numbers: list[int] = field(default_factory=list)
    pair: tuple[str, float] = ("a", 1.0)
    by_kind: Mapping[Kind, int] = field(default_factory=dict)


def test_lists_pairs_and_enum_keys() -> None:
    odd = Odd([1, 2], ("b", 2.5), {Kind.HANG: 1})
    assert through_text(odd) == {"numbers": [1, 2], "pair": ["b", 2.5], "by_kind": {"hang": 1}}
    assert from_json(Odd, through_text(odd)) == odd
    with pytest.raises(RecordError, match=r"Odd\.pair: wanted a list of 2, found \['b'\]"):
        from_json(Odd, {"pair": ["b"]})
    with pytest.raises(RecordError, match=r"Odd\.by_kind: wanted an object, found \[\]"):
        from_json(Odd, {"by_kind": []})


@dataclass(frozen=True)
class Either:
    value: int | str = 0


@dataclass(frozen=True)
class Opaque:
    value: complex = 0j


@pytest.mark.parametrize("cls", [Either, Opaque])
def test_a_type_without_a_json_form_is_a_programming_error(cls: type) -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        to_json(cls())
    with pytest.raises(TypeError, match="no JSON form"):
        from_json(cls, {})


def test_an_outcome_of_an_older_version_says_nothing_of_paths() -> None:
    data = through_text(Outcome(Kind.PASSED, Verdict.OK))
    del data["carried"]
    assert from_json(Outcome, data).carried == {}
