"""Runs of which only a JUnit file is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.compare.from_junit import read
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.reporting import junit
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.events import SessionStarted
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.run_summary import RunSummary, summarise
from tests.reporting.report_samples import CRASHED, KNOWN, NOT_RUN, PASSED, cell

CASE = '<testcase name="c"><properties>{}</properties></testcase>'


def of(record: RunRecord, folder: Path) -> RunSummary:
    path = folder / "junit.xml"
    path.write_bytes(junit.render(record, RunFolder(folder), "again"))
    return read(path)


def write(folder: Path, **properties: str) -> Path:
    path = folder / "x.xml"
    held = "".join(f'<property name="{name}" value="{value}"/>' for name, value in properties.items())
    path.write_text(f"<testsuites><testsuite>{CASE.format(held)}</testsuite></testsuites>")
    return path


def test_ours_holds_what_the_journal_does_but_for_how_it_was_measured(tmp_path: Path) -> None:
    outcomes = {"a-b-c": PASSED, "a-b-d": CRASHED, "a-b-e": KNOWN, "a-b-f": NOT_RUN}
    record = RunRecord(
        tuple(cell(name, outcome) for name, outcome in outcomes.items()), (SessionStarted("1", (), (), "h", 1.0),)
    )
    found, whole = of(record, tmp_path), summarise(record, tmp_path)
    assert (found.machine, found.started) == ("h", 1.7e9)
    for one, other in zip(found.cells, whole.cells, strict=True):
        assert (one.matrix, one.scenario, one.kind, one.verdict) == (
            other.matrix,
            other.scenario,
            other.kind,
            other.verdict,
        )
        assert (one.signature, one.why, one.stack, one.transports) == (
            other.signature,
            other.why,
            other.stack,
            other.transports,
        )
        assert [(m.metric, m.value, m.unit, m.point) for m in one.measurements] == [
            (m.metric, m.value, m.unit, m.point) for m in other.measurements
        ]
        assert {m.ranks for m in one.measurements} <= {0}


def test_of_several_matrices_the_label_holds_the_name(tmp_path: Path) -> None:
    record = RunRecord(
        (
            cell("x", PASSED, matrix="aws", scenario="x", label="aws.x"),
            cell("x", PASSED, matrix="lumi", scenario="x", label="lumi.x"),
        )
    )
    assert [(one.matrix, one.scenario) for one in of(record, tmp_path).cells] == [("aws", "x"), ("lumi", "x")]


def test_in_place_and_numbers_that_are_none(tmp_path: Path) -> None:
    numbers = {"busbw[8,f,in]": "1", "latency[0,none]": "nan", "busbw[99999999999999999999,f]": "1", "note[1,2,3]": "x"}
    given_ = {key: value for key, value in numbers.items() if not key.startswith("note")}
    [one] = read(write(tmp_path, outcome="passed", verdict="ok", scenario="c", matrix="m", **given_)).cells
    assert [(m.name, m.unit) for m in one.measurements] == [("busbw[8,f,in]", "GB/s"), ("latency[0,none]", "us")]


def test_the_tool_is_told_where_it_is_foreign_and_units_go_by_the_metric(tmp_path: Path) -> None:
    numbers = {
        "bandwidth[8,int8]": "GB/s",
        "bidirectional_bandwidth[8,int8]": "GB/s",
        "overhead[8,int8]": "us",
        "message_rate[8,int8]": "1/s",
        "images_per_second[0,none]": "",
    }
    held = dict.fromkeys(numbers, "1")
    [one] = read(write(tmp_path, outcome="passed", verdict="ok", scenario="c", tool="osu_bw 7.4", **held)).cells
    assert one.tool == "osu_bw 7.4"
    assert {m.name: m.unit for m in one.measurements} == numbers


@pytest.mark.parametrize("value", ["x", ""])
def test_what_cannot_be_meant(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, outcome=value, verdict="ok", scenario="c")
    with pytest.raises(UsageError, match=r"x.xml: not the JUnit file of a run \(properties of c: "):
        read(path)


@given(st.binary(max_size=200), st.booleans())
def test_whatever_the_file_holds(tmp_path_factory: pytest.TempPathFactory, data: bytes, wrapped: bool) -> None:
    path = tmp_path_factory.mktemp("wild") / "x.xml"
    path.write_bytes(b"<testsuite timestamp='%b'>" % data if wrapped else data)
    with pytest.raises(UsageError):
        read(path)


def test_entities_that_grow_without_end(tmp_path: Path) -> None:
    levels = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(12))
    path = tmp_path / "x.xml"
    path.write_text(f'<!DOCTYPE x [<!ENTITY e0 "ha">{levels}]><testsuite name="&e12;"/>')
    with pytest.raises(UsageError, match="not the JUnit file of a run"):
        read(path)
