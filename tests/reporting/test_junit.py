"""The contents of `junit.xml`, checked on the parsed file."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from xml.dom import minidom
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml

from pytest_hetgpu.model.job import Expectation
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.reporting import junit
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.events import MatrixFile, SessionStarted
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.properties import to_properties
from tests.reporting.report_samples import (
    CHANGED,
    CRASHED,
    FIXED,
    ISSUE,
    KEY,
    KNOWN,
    NOT_RUN,
    PASSED,
    UNREAD,
    cell,
    job,
)

RERUN = "pytest --hetgpu-matrix {matrix}.yaml --hetgpu-cell {label}"
SESSION = SessionStarted("0.1.0", (), ("pytest",), "login1", 1.6e9)
ALL = (
    *(cell("mixed-ucx-send", PASSED), cell("mixed-ucx-allreduce", CRASHED), cell("mixed-ob1-send", KNOWN)),
    *(cell("mixed-ob1-ddp", CHANGED), cell("cpu-ucx-send", FIXED), cell("cpu-ucx-ddp", UNREAD)),
    cell("cpu-nccl-ddp", NOT_RUN, result=None, started=None),
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "reports")


def render(folder: RunFolder, *cells: CellRecord) -> ET.Element:
    return ET.fromstring(junit.render(RunRecord(cells, (SESSION,)), folder, RERUN))


def case(folder: RunFolder, made: CellRecord) -> ET.Element:
    [found] = render(folder, made).iter("testcase")
    return found


def child(parent: ET.Element, name: str) -> ET.Element:
    [found] = parent.findall(name)
    return found


def out(found: ET.Element) -> str:
    return child(found, "system-out").text or ""


def log(folder: RunFolder, label: str, data: bytes) -> None:
    folder.prepare(label).write_bytes(data)


def test_a_suite_is_a_placement_and_its_totals_are_right(folder: RunFolder) -> None:
    root = render(folder, *ALL)
    totals = ("tests", "failures", "errors", "skipped")
    assert {s.get("name"): [s.get(name) for name in totals] for s in root} == {
        "mixed": ["4", "2", "0", "1"],
        "cpu": ["3", "1", "1", "1"],
    }
    assert [root.get(name) for name in totals] == ["7", "3", "1", None]
    assert float(root.get("time", "")) == pytest.approx(sum(made.outcome.seconds for made in ALL))
    assert {s.get("hostname") for s in root} == {"login1"}
    assert {s.get("timestamp") for s in root} == {"2023-11-14T22:13:20"}


def test_names_are_unique_and_say_where(folder: RunFolder) -> None:
    names = [(found.get("classname"), found.get("name")) for found in render(folder, *ALL).iter("testcase")]
    assert names[:2] == [("mixed.ucx", "mixed-ucx-send"), ("mixed.ucx", "mixed-ucx-allreduce")]
    assert len(set(names)) == len(ALL)


def test_suites_of_several_matrices_are_told_apart(folder: RunFolder) -> None:
    other = cell("mixed-ucx-send", PASSED, matrix="lumi", label="lumi.mixed-ucx-send")
    root = render(folder, cell("mixed-ucx-send", PASSED), other)
    assert [suite.get("name") for suite in root] == ["aws.mixed", "lumi.mixed"]


def test_junitparser_reads_it_as_it_was_meant(folder: RunFolder) -> None:
    read = JUnitXml.fromstring(junit.render(RunRecord(ALL, (SESSION,)), folder, RERUN))
    states = {found.name: type(found.result[0]).__name__ if found.result else "" for suite in read for found in suite}
    assert states == {
        "mixed-ucx-send": "",
        "mixed-ucx-allreduce": "Failure",
        "mixed-ob1-send": "Skipped",
        "mixed-ob1-ddp": "Failure",
        "cpu-ucx-send": "Failure",
        "cpu-ucx-ddp": "Error",
        "cpu-nccl-ddp": "Skipped",
    }


def test_a_new_failure_is_said_in_one_line_and_told_in_full(folder: RunFolder) -> None:
    failure = child(case(folder, cell("mixed-ucx-allreduce", CRASHED)), "failure")
    assert failure.get("message") == f"new crash {KEY}"
    assert failure.get("type") == "crash"
    assert (failure.text or "").split("\n") == [
        "rank 0 died of SIGSEGV",
        "signature (crash): SIGSEGV in libuct_rocm.so",
        "completeness (error): rank 1 never said that it was done",
        f"signature: {KEY}",
        "line 66: Caught signal 11 (Segmentation fault)",
        "command: /opt/ompi/bin/mpirun -np 2 prog",
        "run again: pytest --hetgpu-matrix aws.yaml --hetgpu-cell mixed-ucx-allreduce",
    ]


def test_a_failure_without_a_signature_says_why(folder: RunFolder) -> None:
    hang = Outcome(Kind.HANG, Verdict.NEW, "no output\nfor 60 s")
    assert child(case(folder, cell("a-b-c", hang)), "failure").get("message") == "new hang: no output for 60 s"


def test_changed_and_fixed_show_what_was_expected_and_what_was_found(folder: RunFolder) -> None:
    changed = child(case(folder, cell("a-b-c", CHANGED)), "failure")
    assert (changed.get("message"), changed.get("type")) == (f"changed: found hang, expected crash {KEY}", "hang")
    fixed = child(case(folder, cell("a-b-c", FIXED)), "failure")
    assert fixed.get("message") == f"fixed: found passed, expected crash {KEY} ({ISSUE})"


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        (KNOWN.expectation, f"known: {ISSUE}"),
        (Expectation((Kind.CRASH,), reason="no Large BAR"), "known: no Large BAR"),
        (Expectation((Kind.CRASH, Kind.HANG)), "known: crash or hang"),
    ],
)
def test_a_known_failure_is_a_skip_with_its_trace(folder: RunFolder, expectation: Expectation, message: str) -> None:
    log(folder, "a-b-c", b"Caught signal 11\n")
    found = case(folder, cell("a-b-c", replace(KNOWN, expectation=expectation)))
    assert child(found, "skipped").get("message") == message
    assert f"signature: {KEY}" in out(found)
    assert "Caught signal 11" in out(found)


def test_a_cell_that_was_not_run_says_why(folder: RunFolder) -> None:
    skipped = child(case(folder, cell("a-b-c", NOT_RUN, result=None, skip_issue=ISSUE)), "skipped")
    assert skipped.get("message") == f"needs platform=rocm (give --hetgpu-inventory) ({ISSUE})"


def test_what_could_not_be_read_is_an_error(folder: RunFolder) -> None:
    error = child(case(folder, cell("a-b-c", UNREAD)), "error")
    assert error.get("type") == "unknown"
    assert error.get("message") == "new unknown: return code 3, and nothing that we can read"


def test_numbers_are_properties(folder: RunFolder) -> None:
    found = case(folder, cell("mixed-ucx-send", PASSED))
    assert {p.get("name"): p.get("value") for p in found.iter("property")} == {
        "outcome": "passed",
        "verdict": "ok",
        "scenario": "mixed-ucx-send",
        "matrix": "aws",
        "stack": "Open MPI v5.0.11",
        "transport_seen": "tcp",
        "seconds": "1.5",
        "busbw[1048576,float32]": "1.25",
        "latency[8,float32]": "15.5",
        "units": "busbw=GB/s; latency=us",
    }


@pytest.mark.parametrize(
    ("seconds", "shown"), [(1e-7, 0), (12345.678, 12345.678), (1e300, 1e9), (-1.0, 0), (float("nan"), 0)]
)
def test_time_is_a_plain_decimal(folder: RunFolder, seconds: float, shown: float) -> None:
    text = case(folder, cell("a-b-c", replace(PASSED, seconds=seconds))).get("time", "")
    assert re.fullmatch(r"\d+(\.\d+)?", text)
    assert float(text) == shown


def test_files_are_attached_by_a_path_that_ci_understands(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    log(folder, "a-b-c", b"x\n")
    folder.write_job(job("a-b-c"))
    below = f"reports/{folder.path.name}/scenarios/a-b-c"
    monkeypatch.chdir(folder.path.parents[1])
    found = case(folder, cell("a-b-c", PASSED))
    assert out(found) == f"[[ATTACHMENT|{below}/output.log]]\n[[ATTACHMENT|{below}/job.json]]"
    relative = RunFolder(Path("reports") / folder.path.name)
    assert out(case(relative, cell("a-b-c", PASSED))) == out(found)
    monkeypatch.chdir("/")
    monkeypatch.chdir(folder.path)
    assert out(case(folder, cell("a-b-c", PASSED))).startswith("[[ATTACHMENT|scenarios/a-b-c/")
    monkeypatch.chdir(folder.path / "journal")
    assert out(case(folder, cell("a-b-c", PASSED))).startswith(f"[[ATTACHMENT|{folder.path}/scenarios/a-b-c/")


def test_no_file_no_attachment(folder: RunFolder) -> None:
    assert not case(folder, cell("a-b-c", PASSED)).findall("system-out")


def test_the_log_of_a_pass_is_attached_and_not_shown(folder: RunFolder) -> None:
    log(folder, "a-b-c", b"all went well\n")
    assert "all went well" not in out(case(folder, cell("a-b-c", PASSED)))


def test_a_hostile_log_breaks_nothing(folder: RunFolder) -> None:
    data = b"\x1b[31mred\x1b[0m \x00\xff\xfe ]]> \xf0\x9f\x98\x80 <failure/> &amp;\n"
    data += b"[[ATTACHMENT|/etc/passwd]]\nHF_TOKEN=s3cr3t\n"
    log(folder, "a-b-c", data + b"x" * 1_000_000 + b" end\n")
    text = out(case(folder, cell("a-b-c", CRASHED)))
    assert text.split("\n")[0].endswith("x end")
    log(folder, "a-b-c", data)
    text = out(case(folder, cell("a-b-c", CRASHED)))
    assert text.startswith("red \ufffd\ufffd ]]> \U0001f600 <failure/> &amp;\n")
    assert re.findall(r"\[\[ATTACHMENT\|([^\[\]|]+)\]\]", text) == [str(folder.log("a-b-c"))]
    assert "s3cr3t" not in text


def test_a_hostile_line_in_a_trace_attaches_nothing(folder: RunFolder) -> None:
    found = case(folder, cell("a-b-c", replace(KNOWN, why="[[ATT\x00ACHMENT|/etc/passwd]]")))
    assert "[[ATTACHMENT|" not in out(found)


def test_hostile_words_stay_words(folder: RunFolder) -> None:
    why = 'said "]]>\x00\x1b[1m&<\ud800' + "z" * 1_000_000
    found = case(folder, cell("a-b-c", Outcome(Kind.ERROR, Verdict.NEW, why, stack="\x07")))
    message = child(found, "failure").get("message", "")
    assert message.startswith('new error: said "]]>&<zzz')
    assert len(message) <= 300


def test_secrets_in_commands_do_not_reach_it(folder: RunFolder) -> None:
    made = cell("a-b-c", CRASHED, result=None, argv=("env", "API_KEY=s3cr3t word", "prog"))
    text = child(case(folder, made), "failure").text or ""
    assert "command: env 'API_KEY=[redacted]' prog" in text


def test_the_file_stays_small_enough_for_gitlab(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "MOST_TAILS", 50)
    monkeypatch.setattr(junit, "MOST_MEASUREMENTS", 1)
    for label in ("a-b-c", "a-b-d"):
        log(folder, label, b"y" * 60 + b"\n")
    cells = (cell("a-b-c", CRASHED), cell("a-b-d", CRASHED), cell("a-b-e", PASSED))
    first, second, third = render(folder, *cells).iter("testcase")
    assert "yyy" in out(first)
    assert "yyy" not in out(second)
    assert "left out" in out(second)
    assert "busbw[1048576,float32]" not in {p.get("name") for p in third.iter("property")}


def test_what_would_be_too_large_for_its_readers_has_less_in_it(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(folder, "a-b-c", b"last words\n")
    made = cell("a-b-c", replace(CRASHED, measurements=PASSED.measurements))

    def found(largest: int) -> tuple[bool, bool, bool]:
        monkeypatch.setattr(junit, "LARGEST_REPORT", largest)
        one = case(folder, made)
        text = child(one, "failure").text or ""
        assert f"signature: {KEY}" in text
        assert "run again: pytest" in text
        assert "[[ATTACHMENT|" in out(one)
        measured = "busbw[1048576,float32]" in {p.get("name") for p in one.iter("property")}
        return measured, "last words" in out(one), "completeness (error)" in text

    whole = len(junit.render(RunRecord((made,), (SESSION,)), folder, RERUN))
    assert found(whole) == (True, True, True)
    assert found(whole - 1) == (False, True, True)
    assert found(1) == (False, False, False)


def test_a_run_without_cells_or_sessions_is_still_a_file(folder: RunFolder) -> None:
    assert ET.fromstring(junit.render(RunRecord(()), folder, RERUN)).get("tests") == "0"
    made = cell("a-b-c", PASSED, started=None, axes={})
    root = ET.fromstring(junit.render(RunRecord((made,)), folder, RERUN))
    assert (root[0].get("name"), root[0].get("timestamp")) == ("-", "1970-01-01T00:00:00")
    root = ET.fromstring(junit.render(RunRecord((replace(made, started=1e300),)), folder, RERUN))
    assert root[0].get("timestamp") == "1970-01-01T00:00:00"


def test_ten_thousand_cells(folder: RunFolder) -> None:
    measured = tuple(Measurement("busbw", 1.0 + i, "GB/s", MessagePoint(8 << i, "float32"), 2) for i in range(20))
    outcomes = [replace(PASSED, measurements=measured)] * 9 + [replace(CRASHED, measurements=measured)]
    cells = tuple(cell(f"p{i % 10}-t{i // 10 % 10}-w{i // 100}", outcomes[i // 10 % 10]) for i in range(10_000))
    before = time.perf_counter()
    data = junit.render(RunRecord(cells, (SESSION,)), folder, RERUN)
    sys.stdout.write(f"10,000 cells: {time.perf_counter() - before:.1f} s, {len(data) / 1e6:.1f} MB\n")
    root = ET.fromstring(data)
    assert (root.get("tests"), root.get("failures"), len(root)) == ("10000", "1000", 10)
    assert len({found.get("name") for found in root.iter("testcase")}) == 10_000


ANY = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
POISON = st.one_of(
    ANY, st.sampled_from(["\x1b]0;x\x07\x1b[2J", "\0", "\ud800", "\ufffe", "]]>", "a\nb", "\x9b1m\u202e"])
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(POISON, POISON, st.sampled_from([PASSED, CRASHED, KNOWN, CHANGED, FIXED, NOT_RUN]))
def test_every_text_and_every_name_makes_xml(folder: RunFolder, one: str, other: str, outcome: Outcome) -> None:
    point = MessagePoint(8, one, other)
    signature = replace(CRASHED.signature, key=other, primary_line=one) if CRASHED.signature else None
    poisoned = replace(
        outcome,
        why=one,
        stack=other,
        signature=signature if outcome.signature else None,
        carried={one: (other,)},
        facts={one: other, "tool": one},
        concerns=(one,),
        notes=(other,),
        transports=(one, other),
        measurements=(Measurement(one, 1.0, other, point, 2),),
    )
    made = replace(cell("a-b-c", poisoned), matrix=one, label=other or "c", axes={"placement": one, "transport": other})
    session = replace(SESSION, host=one, matrices=(MatrixFile(one, other, "0"),))
    past = [(one, other), (f"x[{other}]", one)]
    text = junit.render(RunRecord((made,), (session,)), folder, one, past=lambda _: past)
    (case_,) = ET.fromstring(text).iter("testcase")
    assert minidom.parseString(text)
    assert len(list(case_.iter("property"))) >= 5
    for name, _ in to_properties(poisoned, label=other, matrix=one):
        ET.fromstring(f"<p n={quoteattr(name)}/>")
