"""The condition of a failure in reports and on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pytest_hetgpu.analysis.boundary.words import where
from pytest_hetgpu.cli.main import main
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.outcome import Attempt, Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.reporting.boundary import boundaries, of_cell, page_conditions
from pytest_hetgpu.reporting.boundary_file import boundary_json
from pytest_hetgpu.reporting.boundary_lines import boundary_lines
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.store.cells import NEVER_STARTED, CellRecord, CellState, RunRecord
from pytest_hetgpu.store.events import Controlled
from tests.reporting.report_samples import RERUN

KEY = "SIGSEGV@libuct.so!put"


def cell(transport: str, workload: str, kind: Kind, key: str = KEY) -> CellRecord:
    failed = kind is not Kind.PASSED
    signature = Signature(kind, key, "line", 1) if failed else None
    facts = {"memory": "guarded" if workload == "guarded" else "host"}
    outcome = Outcome(kind, Verdict.NEW if failed else Verdict.OK, signature=signature, facts=facts)
    label = f"{transport}-{workload}"
    axes = {"transport": transport, "workload": workload}
    return CellRecord("m", label, label, axes, state=CellState.JUDGED, outcome=outcome)


CELLS = [
    *(cell(transport, workload, Kind.PASSED) for transport in ("tcp", "shm", "rc") for workload in ("send", "reduce")),
    *(cell(transport, "guarded", Kind.CRASH) for transport in ("tcp", "shm")),
    cell("rc", "guarded", Kind.ERROR, "MPI_ERR_OTHER"),
]


def test_it_is_a_few_lines() -> None:
    ((matrix, found),) = boundaries(CELLS)
    assert (matrix, [one.key for one in found]) == ("m", ["", KEY, "MPI_ERR_OTHER"])
    lines = dict(boundary_lines(found[1]))
    assert where(found[0]) == "workload=guarded (i.e. memory=guarded)"
    assert lines["where"] == "workload=guarded (i.e. memory=guarded) and transport=all but rc"
    assert lines["support"] == "all 2 matching cells fail this way (all were run), 0 of 7 others"
    assert lines["required"] == "workload: send, reduce pass; transport: rc fails otherwise (MPI_ERR_OTHER)"
    assert lines["no effect"] == "transport (tcp, shm)"
    assert of_cell({"m": found}, CELLS[-1]) is found[2]
    assert of_cell({"m": found}, CELLS[0]) is None


def test_excluded_cells_do_not_count() -> None:
    skipped = replace(CELLS[-1], outcome=Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why="excluded"))
    ((_, (only,)),) = boundaries([*CELLS[:-1], skipped])
    assert where(only) == "workload=guarded (i.e. memory=guarded)"
    assert only.support.matching == 2


def test_runs_of_the_same_cells_are_joined() -> None:
    flaky = [replace(one, outcome=Outcome(Kind.PASSED, Verdict.OK)) for one in CELLS[6:7]]
    ((_, found),) = boundaries([*CELLS, *flaky])
    assert found[0].state == "flaky"


def test_failures_of_the_surroundings_alone_have_conditions() -> None:
    lost = [
        cell("tcp", "send", Kind.LAUNCH_FAILURE, "no-host@ssh"),
        cell("shm", "send", Kind.LAUNCH_FAILURE, "no-program@a"),
    ]
    ((_, found),) = boundaries([*lost, *CELLS[3:6]])
    assert [one.key for one in found] == ["", "no-host@ssh", "no-program@a"]
    assert (found[0].support.run, found[1].support.failing) == (0, 1)


def test_a_failure_without_a_signature_counts() -> None:
    wrong = cell("rc", "reduce", Kind.WRONG_RESULT)
    wrong = replace(wrong, outcome=replace(wrong.outcome, signature=None))
    ((_, found),) = boundaries([*CELLS[:5], wrong])
    assert [(one.key, one.support.failing) for one in found] == [("wrong_result", 1)]


def test_of_ten_thousand_cells() -> None:
    axes = [(f"t{a}", f"w{b}") for a in range(100) for b in range(100)]
    ((_, (only,)),) = boundaries([cell(*pair, Kind.CRASH if pair[0] == "t3" else Kind.PASSED) for pair in axes])
    assert where(only) == "transport=t3"


def test_a_folder_of_no_run_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boundary", str(tmp_path)]) == 4
    assert "not the folder of a run" in capsys.readouterr().err


SAMPLE = Path(__file__).parents[2] / "reports" / "sample"


def test_of_a_run_without_failures_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "boundary.json").write_text(json.dumps({}))
    (tmp_path / "journal").mkdir()
    build(tmp_path, RERUN)
    assert not (tmp_path / "boundary.json").exists()


def test_the_file_is_as_its_schema_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "boundary"]) == 0
    schema = json.loads(capsys.readouterr().out)
    content = json.loads(boundary_json(dict(boundaries(CELLS))))
    Draft202012Validator(schema).validate(content)
    assert content["matrices"]["m"][1]["key"] == KEY
    broken = {**content, "matrices": {"m": [{"key": 1}]}}
    assert not Draft202012Validator(schema).is_valid(broken)


def test_an_open_condition_has_its_rivals_and_the_cell_that_parts_them() -> None:
    two = [
        cell("tcp", "guarded", Kind.CRASH),
        cell("shm", "send", Kind.PASSED),
        replace(cell("tcp", "send", Kind.PASSED), outcome=NEVER_STARTED),
        replace(cell("shm", "guarded", Kind.PASSED), outcome=NEVER_STARTED),
    ]
    ((_, (only,)),) = boundaries(two)
    lines = dict(boundary_lines(only))
    assert only.state == "open"
    assert {lines["where"], *lines["rivals"].split("; ")} == {"transport=tcp", "workload=guarded"}
    assert lines["not tried"] in ("transport=tcp workload=send", "transport=shm workload=guarded")


def test_a_cell_that_the_matrix_does_not_have_is_not_counted() -> None:
    failed = Attempt(Kind.CRASH, KEY, "", "log", 1.0)
    control = Controlled("m", "tcp-guarded", "l", 1, KEY, "r", values={"transport": "tcp without x"}, attempt=failed)
    cells = [replace(one, controls=(control,)) if one.scenario == "tcp-guarded" else one for one in CELLS[:-1]]
    found = dict(boundaries(cells))
    ((only,),) = found.values()
    lines = dict(boundary_lines(only))
    assert lines["where"] == "workload=guarded (i.e. memory=guarded)"
    assert lines["support"] == "all 2 matching cells fail this way (all were run), 0 of 6 others"
    assert lines["no effect"] == "transport (tcp, shm, tcp without x)"
    (condition,) = page_conditions(found, RunRecord(tuple(cells)))
    assert condition["cells"] == f"{0b11000000:x}"
