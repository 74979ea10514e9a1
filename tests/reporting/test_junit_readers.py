"""`junit.xml` in other readers: the schema that Jenkins publishes, and foreign parsers."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import xmltodict
from junit2htmlreport.parser import Junit
from junitparser import JUnitXml

from pytest_hetgpu.reporting import junit
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.events import SessionStarted
from pytest_hetgpu.store.folder import RunFolder
from tests.reporting.report_samples import CHANGED, CRASHED, FIXED, KNOWN, NOT_RUN, PASSED, RERUN, UNREAD, cell, job

SESSION = SessionStarted("0.1.0", (), ("pytest",), "login1", 1.6e9)
GITLABS_LIMIT = 30_000_000
OUTCOMES = {
    "mixed-ucx-send": PASSED,
    "mixed-ucx-allreduce": CRASHED,
    "mixed-ob1-send": KNOWN,
    "mixed-ob1-ddp": CHANGED,
    "cpu-ucx-send": FIXED,
    "cpu-ucx-ddp": UNREAD,
    "cpu-nccl-ddp": NOT_RUN,
}
RESULT = {"message", "type"}
# Attributes (with ! required) and children of each element: junit-10.xsd of Jenkins' xunit plugin, and what pytest and
# others add and all take, a case's properties.
SCHEMA: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name!", "tests!", "failures!", "errors!", "time", "skipped", "timestamp", "hostname", "id", "package"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": (
        {"name!", "time", "classname", "group"},
        {"skipped", "error", "failure", "system-out", "system-err", "properties"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name!", "value!"}, set()),
    **{name: (RESULT, set()) for name in ("skipped", "error", "failure")},
    "system-out": (set(), set()),
    "system-err": (set(), set()),
}
ATTACHED = re.compile(r"\[\[ATTACHMENT\|(?P<path>[^\[\]|]+?)\]\]")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The report of a cell of each verdict, with logs."""
    folder = RunFolder.create(tmp_path / "reports")
    for label in OUTCOMES:
        folder.prepare(label).write_bytes(b"\x1b[1mlast words]]> of \xff " + label.encode() + b"\n")
        folder.write_job(job(label))
    cells = tuple(cell(label, outcome) for label, outcome in OUTCOMES.items())
    path = folder.path / "junit.xml"
    path.write_bytes(junit.render(RunRecord(cells, (SESSION,)), folder, RERUN))
    return path


def test_elements_and_attributes_are_those_of_the_schema(file: Path) -> None:
    for element in ET.parse(file).iter():
        attributes, children = SCHEMA[element.tag]
        assert set(element.attrib) <= {name.rstrip("!") for name in attributes}, element.tag
        assert {name.rstrip("!") for name in attributes if name.endswith("!")} <= set(element.attrib), element.tag
        assert {child.tag for child in element} <= children, element.tag


def test_the_published_schema_takes_it(file: Path) -> None:
    """Use junit-10.xsd, named by `HETGPU_JUNIT_XSD`; this project does not distribute it."""
    place = os.environ.get("HETGPU_JUNIT_XSD")
    if not place:
        pytest.skip("needs the schema of Jenkins' xunit plugin: HETGPU_JUNIT_XSD=.../junit-10.xsd")
    import xmlschema

    root = ET.parse(file).getroot()
    for case in root.iter("testcase"):
        for properties in case.findall("properties"):
            case.remove(properties)
    xmlschema.XMLSchema(place).validate(root)


def test_junit2html_reads_it(file: Path) -> None:
    read = Junit(str(file))
    cases = [case for suite in read.suites for case in suite.all()]
    assert {case.name: str(case.outcome()) for case in cases} == {
        "mixed-ucx-send": "passed",
        "mixed-ucx-allreduce": "failed",
        "mixed-ob1-send": "skipped",
        "mixed-ob1-ddp": "failed",
        "cpu-ucx-send": "failed",
        "cpu-ucx-ddp": "failed",
        "cpu-nccl-ddp": "skipped",
    }
    assert [suite.name for suite in read.suites] == ["mixed", "cpu"]


def test_a_reader_of_nested_maps_gets_one_message_a_failure(file: Path) -> None:
    """Convert as xml2js and xml-js do: a list for several children, else the child itself."""
    read: dict[str, Any] = xmltodict.parse(file.read_bytes(), force_list=("testsuite", "testcase"))
    cases = [case for suite in read["testsuites"]["testsuite"] for case in suite["testcase"]]
    groups = {case["@classname"] for case in cases}
    assert groups == {"mixed.ucx", "mixed.ob1", "cpu.ucx", "cpu.nccl"}
    assert len({(case["@classname"], case["@name"]) for case in cases}) == len(OUTCOMES)
    for case in cases:
        for name in {"failure", "error", "skipped"} & case.keys():
            assert isinstance(case[name], dict), "one result a case"
            assert case[name]["@message"]
            assert "\n" not in case[name]["@message"]
        assert isinstance(case.get("system-out", ""), str), "one system-out a case"


def test_a_known_failure_keeps_its_trace_and_its_link(file: Path) -> None:
    read = JUnitXml.fromfile(str(file))
    (known,) = (case for suite in read for case in suite if case.name == "mixed-ob1-send")
    assert known.is_skipped
    assert known.result[0].message.startswith("known: https://")
    assert "signature: SIGSEGV@" in str(known.system_out)


def test_attachments_are_found_where_the_marker_says(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ATTACHED.findall(file.read_text("utf-8"))
    assert len(found) == 2 * len(OUTCOMES)
    assert all(Path(path).is_file() for path in found)
    assert {Path(path).name for path in found} == {"output.log", "job.json"}


@pytest.mark.parametrize("failing", [1_000, 2_000])
def test_ten_thousand_cells_with_a_gigabyte_of_logs(tmp_path: Path, failing: int) -> None:
    folder = RunFolder.create(tmp_path / "reports")
    labels = [f"p{i % 10}-t{i // 10 % 10}-w{i // 100}" for i in range(10_000)]
    each = 10**9 // failing
    for label in labels[:failing]:
        with folder.prepare(label).open("wb") as log:  # a hole of zeros, and an end
            log.seek(each)
            log.write(
                b"\n" + b"".join(b"[node0] line %d of the end\n" % n for n in range(300)) + label.encode() + b"\n"
            )
    assert sum(folder.log(label).stat().st_size for label in labels[:failing]) > 10**9
    cells = tuple(cell(label, CRASHED if i < failing else PASSED) for i, label in enumerate(labels))
    before = time.perf_counter()
    data = junit.render(RunRecord(cells, (SESSION,)), folder, RERUN)
    took = time.perf_counter() - before
    sys.stdout.write(f"10,000 cells, {failing} fail, 1 GB of logs: {len(data) / 1e6:.1f} MB in {took:.1f} s\n")
    assert len(data) < GITLABS_LIMIT
    read = ET.fromstring(data)
    outs = {case.get("name"): case.findtext("system-out", "") for case in read.iter("testcase")}
    assert len(outs) == 10_000
    assert all("[[ATTACHMENT|" in outs[label] for label in labels[:failing])
    ended = sum(f"\n{label}\n" in f"\n{outs[label]}" for label in labels[:failing])
    told = sum(junit.TAIL_OMITTED in outs[label] for label in labels[:failing])
    assert ended + told == failing
    assert ended >= 1_000
