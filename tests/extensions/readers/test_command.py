"""A user's own patterns and paths."""

from __future__ import annotations

import json
import sys
import time

import pytest
from pydantic import ValidationError

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions import units
from pytest_hetgpu.extensions.output_patterns import CommandSettings
from pytest_hetgpu.extensions.readers import command
from pytest_hetgpu.extensions.readers.base import measurements
from pytest_hetgpu.extensions.readers.command import CommandParser
from pytest_hetgpu.model.program_output import BenchmarkResult
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind
from tests.extensions.readers.feeding import read, values

pytest.importorskip("re2")


def run(text: str, **settings: object) -> BenchmarkResult:
    return read("command", text, settings=CommandSettings.model_validate(settings))


def test_a_pattern_with_groups() -> None:
    pattern = (
        r"(?P<operation>\w+) of (?P<size>\S+) (?P<dtype>\w+): (?P<value>[-\d.e+]+) (?P<unit>\S+), (?P<wrong>\d+) wrong"
    )
    found = run("allreduce of 64K float32: 2.5 Gbit/s, 3 wrong\nnothing here\n", patterns=[{"pattern": pattern}])
    (only,) = found.rows
    assert (only.operation, only.point, only.ranks, only.wrong, only.line) == (
        *("allreduce", MessagePoint(65536, "float32"), 2),
        *(3, 1),
    )
    assert only.figures["bandwidth"].unit == "GB/s"
    assert values(only) == {"bandwidth": pytest.approx(2.5e9 / 8 / 1e9)}
    assert found.warnings == found.failed == ()


def test_what_a_pattern_has_no_group_for_stands_beside_it() -> None:
    beside = {"unit": "ms", "size": 8, "dtype": "int8", "operation": "broadcast"}
    (only,) = run("took 1.5\n", patterns=[{"pattern": r"took (?P<value>\S+)", **beside}]).rows
    assert (only.operation, only.point, only.wrong) == ("broadcast", MessagePoint(8, "int8"), None)
    assert only.seconds == pytest.approx(1.5e-3)


def test_a_unit_that_is_not_known_is_kept() -> None:
    (only,) = run("7 images/s\n", patterns=[{"pattern": r"(?P<value>\d+) (?P<unit>\S+)", "metric": "speed"}]).rows
    assert only.figures == {"speed": (7.0, "images/s")}


@pytest.mark.parametrize(
    ("unit", "known"),
    [
        *(
            ("us", ("s", 1e-6)),
            ("\u00b5s", ("s", 1e-6)),
            ("ns", ("s", 1e-9)),
            ("%", ("%", 1.0)),
            ("msg/s", ("1/s", 1.0)),
        ),
        *(("MB/s", ("GB/s", 1e-3)), ("MB/sec", ("GB/s", 1e-3)), ("kB/s", ("GB/s", 1e-6)), ("B/s", ("GB/s", 1e-9))),
        *(("MiB/s", ("GB/s", 1048576 / 1e9)), ("GiB/s", ("GB/s", 1024**3 / 1e9)), ("Gbps", ("GB/s", 0.125))),
        *(("Mb/s", ("GB/s", 0.125e-3)), ("Gbit/s", ("GB/s", 0.125)), ("GBps", ("GB/s", 1.0))),
        *(("", None), ("iB/s", None), ("steps", None), ("XB/s", None), ("GB", None)),
    ],
)
def test_units(unit: str, known: tuple[str, float] | None) -> None:
    found = units.known(unit)
    assert (found and found[0]) == (known and known[0])
    assert (found[1] if found else 0.0) == pytest.approx(known[1] if known else 0.0)


def test_success_and_failure() -> None:
    assert run("PASSED\n", success="PASS").failed == ()
    silent = run("oops\n", success="PASS")
    assert (silent.failed, silent.missing_success) == ((), "nothing fits 'PASS', which marks success")
    assert CommandParser.meaning_of_stop(silent) is None
    assert run("PASSED\nFATAL: lost\n", success="PASS", failure="FATAL").failed == ("FATAL: lost",)
    exited = CommandParser.meaning_of_exit(0, run("oops\n", success="PASS"))
    assert exited is not None
    assert exited.kind is Kind.WRONG_RESULT


DOCUMENT = {"ok": True, "runs": [{"bytes": 8, "us": 1.5}, {"bytes": "1M", "us": 100}], "env": {"a": 1}}


@pytest.mark.parametrize(
    "text", [json.dumps(DOCUMENT), json.dumps(DOCUMENT, indent=1), f"log\n{json.dumps(DOCUMENT)}\n"]
)
def test_json(text: str) -> None:
    number = {"path": "runs.*.us", "sizes": "runs.*.bytes", "unit": "us", "operation": "allreduce", "dtype": "int8"}
    found = run(text, json_success="ok", json_numbers=[number])
    assert [one.point for one in found.rows] == [MessagePoint(8, "int8"), MessagePoint(1 << 20, "int8")]
    assert [one.seconds for one in found.rows] == pytest.approx([1.5e-6, 1e-4])
    assert found.warnings == found.failed == ()


@pytest.mark.parametrize(
    ("document", "path", "figures"),
    [
        ({"a": {"b": [1, 2]}}, "a.b.1", [2.0]),
        ({"a": {"x": 1, "y": 2}}, "a.*", [1.0, 2.0]),
        ([[1], [2]], "*.0", [1.0, 2.0]),
        ({"a": 1}, "a.b", []),
        ({"a": [1]}, "a.x", []),
        ({"a": [1]}, "a.7", []),
    ],
)
def test_paths(document: object, path: str, figures: list[float]) -> None:
    found = run(json.dumps(document), json_numbers=[{"path": path}])
    assert [values(one)["value"] for one in found.rows] == figures


@pytest.mark.parametrize(
    ("text", "failed", "complaint"),
    [
        ('{"ok": false}', "ok is not true", "nothing at n"),
        ("{", "ok is not true", "no JSON that can be read"),
        ("", "ok is not true", "no JSON that can be read"),
        ('{"ok": true, "n": "many"}', "", "value is 'many', no number"),
        ('{"ok": true, "n": NaN}', "", "value is not finite"),
        ('{"ok": true, "n": -1}', "", "value is negative"),
        ('{"ok": "true", "n": {}}', "", "value is '{}', no number"),
    ],
)
def test_json_that_is_wrong(text: str, failed: str, complaint: str) -> None:
    found = run(text, json_success="ok", json_numbers=[{"path": "n"}])
    assert (found.failed[0] if found.failed else "") == failed
    assert any(said.startswith(complaint) for said in found.warnings), found.warnings


def test_sizes_that_do_not_match() -> None:
    found = run('{"n": [1, 2], "s": [8]}', json_numbers=[{"path": "n.*", "sizes": "s.*"}])
    assert (found.rows, found.warnings[0]) == ((), "2 figures at n.*, and 1 sizes at s.*")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"patterns": [{"pattern": "time (.*)"}]}, "has no group named value"),
        ({"patterns": [{"pattern": "(?P<value>.)(?P<colour>.)"}]}, "unknown group 'colour'"),
        ({"patterns": [{"pattern": "(?P<value>"}]}, "is no RE2 pattern: missing )"),
        ({"patterns": [{"pattern": r"(?P<value>\d+)(?=x)"}]}, "is no RE2 pattern"),
        ({"success": "("}, "is no RE2 pattern"),
        ({"failure": "x" * 1001}, "at most 1000 characters"),
        ({"json_numbers": [{"path": "a..b"}]}, "String should match pattern"),
        ({"regex": "x"}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_are_wrong(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said.replace("(", r"\(").replace(")", r"\)")):
        CommandSettings.model_validate(settings)


def test_no_pattern_can_hang_a_run() -> None:
    """Backtracking needs 2 to the 30 steps for this line."""
    began = time.monotonic()
    found = run("a" * 16_000 + "!\n", patterns=[{"pattern": r"(?P<value>(a+)+)$"}], success=r"^(a|aa)+$")
    assert time.monotonic() - began < 5
    assert found.warnings == ("no figure was found",)


def test_a_size_may_be_0() -> None:
    (only,) = run("0 1.5\n", patterns=[{"pattern": r"(?P<size>\d+) (?P<value>\S+)", "unit": "us"}]).rows
    assert only.point == MessagePoint(0, "none")
    wrong = run("999G9 1.5\n", patterns=[{"pattern": r"(?P<size>\w+) (?P<value>\S+)", "unit": "us"}])
    assert wrong.warnings[0] == "the size is '999G9' (line 1)"


def test_a_document_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_LONGEST_DOCUMENT", 10)
    found = run('{"n": 1, "ok": true}\n', json_numbers=[{"path": "n"}], json_success="ok")
    assert found.warnings[0].endswith("of JSON: it is not read")
    assert found.rows == ()


def test_without_re2_a_pattern_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    settings = CommandSettings.model_validate({"success": "PASS", "patterns": [{"pattern": "(?P<value>.)"}]})
    with pytest.raises(NotHere, match="google-re2"):
        CommandParser(settings=settings)
    assert CommandParser(settings=CommandSettings()).finish().rows == ()


LOOP = {"pattern": r"Loop time of (?P<value>\S+) on", "metric": "loop", "unit": "s"}


def test_a_metric_of_ones_own_keeps_its_unit() -> None:
    found = measurements(run("Loop time of 1.5 on 2 procs\nrate 20 steps/s\n", patterns=[LOOP, RATE]))
    assert [(one.metric, one.value, one.unit) for one in found] == [("loop", 1.5, "s"), ("rate", 20.0, "steps/s")]


RATE = {"pattern": r"rate (?P<value>\S+) (?P<unit>\S+)", "metric": "rate"}


@pytest.mark.parametrize(
    ("pattern", "text", "value", "unit"),
    [
        ({"metric": "loop", "unit": "ms"}, "took 12", 12.0, "ms"),
        ({"metric": "loop", "unit": "s"}, "took 12 ms", 0.012, "s"),
        ({"metric": "loop"}, "took 12 ms", 0.012, "s"),
        ({"metric": "rate", "unit": "MB/s"}, "took 12", 12.0, "MB/s"),
        ({"metric": "latency", "unit": "ms"}, "took 12", 12000.0, "us"),
        ({"unit": "ms"}, "took 12", 12000.0, "us"),
        ({"metric": "fraction", "unit": "widgets"}, "took 12", 12.0, "widgets"),
    ],
)
def test_units_of_metrics(pattern: dict[str, str], text: str, value: float, unit: str) -> None:
    expression = r"took (?P<value>\d+) (?P<unit>\w+)" if " ms" in text else r"took (?P<value>\d+)"
    (found,) = measurements(run(text, patterns=[{"pattern": expression, **pattern}]))
    assert found.value == pytest.approx(value)
    assert found.unit == unit


def test_the_order_is_that_of_the_patterns_and_a_direction_may_be_stated() -> None:
    text = "energy 7 Ry\nLoop time of 1.5 on 2 procs\n"
    energy = {"pattern": r"energy (?P<value>\S+)", "metric": "energy", "unit": "Ry", "better": "lower"}
    found = measurements(run(text, patterns=[LOOP, energy]))
    assert [(one.metric, one.better) for one in found] == [("loop", ""), ("energy", "lower")]


def test_two_numbers_for_one_point_are_an_error_that_names_both_lines() -> None:
    text = "x\nLoop time of 1.5 on 2 procs\nLoop time of 1.6 on 2 procs\nLoop time of 1.7 on 2 procs\n"
    (warning,) = run(text, patterns=[LOOP]).warnings
    assert "two numbers for one point" in warning
    assert warning.endswith("loop at 0,none in line 2 and again (line 3 and 1 more)")
    repeated = run(text, patterns=[{**LOOP, "repeats": True}])
    assert repeated.warnings == ()
    (found,) = measurements(repeated)
    assert (found.value, found.samples) == (1.6, (1.5, 1.6, 1.7))


def test_tables_with_operations_of_their_own_do_not_mix() -> None:
    text = "pingpong 8 0.5\nallreduce 8 0.9\n"
    table = r"(?P<operation>\w+) (?P<size>\d+) (?P<value>\S+)"
    found = run(text, patterns=[{"pattern": table, "metric": "latency", "unit": "us", "dtype": "int8"}])
    assert found.warnings == ()
    names = {one.name: one.value for one in measurements(found) if one.unit == "us"}
    assert names == {"pingpong_latency[8,int8]": 0.5, "allreduce_latency[8,int8]": pytest.approx(0.9)}


def test_the_same_point_twice_in_a_document() -> None:
    (warning,) = run('{"a": [1, 2]}', json_numbers=[{"path": "a.*", "metric": "x"}]).warnings
    assert "two numbers for one point" in warning
    assert run('{"a": [1, 2]}', json_numbers=[{"path": "a.*", "metric": "x", "repeats": True}]).warnings == ()
