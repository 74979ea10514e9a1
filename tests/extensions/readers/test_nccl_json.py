"""The document that nccl-tests writes with `-J`."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hetgpu.extensions.readers.base import measurements
from pytest_hetgpu.model.records import MessagePoint
from tests.extensions.readers.feeding import read, values
from tests.extensions.readers.nccl_text import banner, document, footer, header, row, written

POINTS = [MessagePoint(1 << 20, "float32", place) for place in ("", "in")]


def changed(**body: Any) -> dict[str, Any]:
    root = document()
    root["results"][0]["out_of_place"].update(body)
    return root


def test_rows() -> None:
    found = read("nccl_tests", written(document()), ranks=None)
    assert found.warnings == ()
    assert [(one.operation, one.point, one.ranks, one.iterations, one.wrong) for one in found.rows] == [
        ("allreduce", point, 2, 20, 0) for point in POINTS
    ]
    assert values(found.rows[0]) == {"latency": pytest.approx(1e-4), "algbw": 10.48576, "busbw": 10.48576}
    assert found.versions == {"nccl": "2.29.7"}


def test_null_is_unchecked() -> None:
    found = read("nccl_tests", written(changed(nwrong=None)), ranks=None)
    assert [one.wrong for one in found.rows] == [None, 0]
    assert found.unchecked(POINTS) == (POINTS[0],)


def test_a_place_that_was_not_run_has_no_row() -> None:
    root = document()
    root["results"][0]["out_of_place"] = None
    assert [one.point.place for one in read("nccl_tests", written(root), ranks=None).rows] == ["in"]


def test_of_each_process_the_first_gpu_is_listed() -> None:
    root = document()
    root["config"] |= {"nthreads": 2, "ngpus": 4}
    assert {one.ranks for one in read("nccl_tests", written(root), ranks=None).rows} == {16}


def test_its_rows_stand_for_those_of_the_table() -> None:
    table = header() + row(1 << 20, "100.00", "10.49", "10.49", "0", "100.00", "10.49", "10.49", "0")
    found = read("nccl_tests", banner() + table + footer() + written(document()), ranks=None)
    assert len(found.rows) == 2
    assert values(found.rows[0])["algbw"] == 10.48576
    assert (found.version, found.warnings) == ("2.19.6", ())


def test_one_rank_moves_nothing() -> None:
    root = document()
    del root["config"]["devices"][1]
    for place in ("out_of_place", "in_place"):
        root["results"][0][place]["bus_bw"] = 0.0
    found = read("nccl_tests", written(root), ranks=None)
    assert found.warnings == ("1 rank: nothing moved, no figure is a bandwidth",)
    assert {item.metric for item in measurements(found)} == {"latency"}


def test_ranks_that_were_not_asked_for() -> None:
    assert read("nccl_tests", written(document()), ranks=4).warnings == ("4 ranks were asked for, the job has 2",)


def test_of_several_documents_the_last_is_read() -> None:
    found = read("nccl_tests", f"{written(changed(time=5.0))}\n{written(document())}\n", ranks=None)
    assert [one.seconds for one in found.rows] == [pytest.approx(1e-4)] * 2
    assert found.warnings == ("2 JSON documents: the last is read",)


def test_a_document_that_breaks_off_leaves_the_table() -> None:
    table = header() + row(1 << 20, "100.00", "10.49", "10.49", "0", "100.00", "10.49", "10.49", "0")
    found = read("nccl_tests", f"{written(document())[:300]}\n{banner()}{table}{footer()}", ranks=None)
    assert len(found.rows) == 2
    assert found.warnings[0].startswith("the JSON cannot be read")


def test_per_iteration_figures() -> None:
    root = document()
    root["results"][0]["in_place_per_iter"] = {"min_us": 90.0, "max_us": 120.0, "p99_us": 119.0, "cv_pct": 3.0}
    assert values(read("nccl_tests", written(root), ranks=None).rows[1])["iteration_max"] == pytest.approx(120e-6)


@pytest.mark.parametrize("key", ["average_bus_bandwidth", "average_bus_bandwidith"])
def test_too_slow_by_either_spelling(key: str) -> None:
    root = document()
    del root["average_bus_bandwidth"]
    found = read("nccl_tests", written({**root, key: {"bandwidth": 1.0, "okay": "false"}}), ranks=None)
    assert found.slow
    assert found.failed == ("Avg bus bandwidth : FAILED",)


def test_the_environment_is_not_kept() -> None:
    assert "hidden" not in repr(read("nccl_tests", written(document()), ranks=None))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (written(document())[:400], "the JSON cannot be read"),
        (written(document()).replace("100.0", "inf"), "the JSON cannot be read"),
        (written(changed(time="nan")), "time is not finite"),
        (written(changed(time=-1)), "time is negative"),
        (written(changed(alg_bw=None)), "alg_bw is 'None', no number"),
        (written(document(results=[])), "the JSON has no results"),
        (written(document(results=[8])), "the JSON has no results"),
        (written(document(results="none")), "the JSON has no results"),
        (written(document(results=[{"size": -8, "type": "float"}])), "a result of the JSON without size or type"),
        (written(document(config={"devices": 3})), ""),
        ('{"version"' * 20_000, "the JSON cannot be read"),
        ('{"version":' + "[" * 100_000, "the JSON cannot be read"),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str) -> None:
    found = read("nccl_tests", text, ranks=None)
    assert any(said.startswith(complaint) for said in (*found.warnings, "")), found.warnings
