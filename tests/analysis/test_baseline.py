"""Earlier runs as limits: like is compared with like, and a point that cannot be compared has the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.analysis import baseline
from pytest_hetgpu.analysis.baseline import Baseline
from pytest_hetgpu.analysis.compare.find import RunLocations
from pytest_hetgpu.analysis.compare.sides import Side
from pytest_hetgpu.errors import HetgpuError, UsageError
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.job import Command, Job
from pytest_hetgpu.model.quantities import HIGHER, LOWER
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.thresholds import EVERY, Threshold
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary
from tests.analysis.judges.judge_cases import job

POINT, OTHER = MessagePoint(8, "float32"), MessagePoint(1 << 20, "float32")
FACTS = {"openmpi": "5.0.10", "memory": "host"}
SMOKE = MatrixFile("smoke", "smoke.yaml", "0" * 64)


def times(*samples: float, point: MessagePoint = POINT, ranks: int = 2) -> Measurement:
    """Return a latency in us whose median is the middle one."""
    middle = sorted(samples)[len(samples) // 2]
    return Measurement("latency", middle, "us", point, ranks, samples if len(samples) > 1 else ())


def cell(*measurements: Measurement, **changes: Any) -> CellSummary:
    made = CellSummary("smoke", "cell", Kind.PASSED, Verdict.OK, facts=FACTS, measurements=measurements)
    return replace(made, **{"tool": "allreduce.py", **changes})


def past(*cells: CellSummary, **changes: Any) -> RunSummary:
    return replace(RunSummary("20261120-020006-02b3", "/r", 1.0, "vm", "0.1", (SMOKE,), cells), **changes)


def held(*runs: RunSummary, **demand: Any) -> dict[MessagePoint, tuple[Threshold, ...]]:
    return dict(Baseline(Side("last:9", runs)).limits(asked(**demand)))


def asked(**demand: Any) -> Job:
    made = job(**{"points": (POINT,), "facts": {"memory": "host"}, **demand})
    return replace(made, command=Command(("mpirun", "-np", "2", "python", "/p/allreduce.py", "--sizes", "8")))


def test_the_repeats_of_one_run() -> None:
    (limit,) = held(past(cell(times(5.0, 6.0, 7.0))), tolerance=0.2)[POINT]
    assert limit == Threshold("latency", "baseline 20261120-020006-02b3", (5.0, 6.0, 7.0), "us", LOWER, 0.2)


def test_of_four_runs_or_more_each_counts_once() -> None:
    few = [past(cell(times(5.0 + run, 6.0 + run, 7.0 + run))) for run in range(3)]
    assert len(held(*few)[POINT][0].values) == 9
    many = [past(cell(times(5.0 + run, 6.0 + run, 7.0 + run))) for run in range(4)]
    (limit,) = held(*many)[POINT]
    assert limit.values == (6.0, 7.0, 8.0, 9.0)
    assert limit.source == "baseline last:9 (4 runs)"


def test_a_run_without_repeats_is_one_number() -> None:
    assert held(past(cell(times(5.0))))[POINT][0].values == (5.0,)


def test_large_messages_are_told_as_bandwidths() -> None:
    both = cell(Measurement("busbw", 1.0, "GB/s", OTHER, 2), times(900.0, point=OTHER))
    assert [one.metric for one in held(past(both), points=(OTHER,))[OTHER]] == ["busbw"]


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (cell(times(5.0, ranks=4)), "ranks 4 before and 2 after"),
        (cell(times(5.0), tool="osu_allreduce"), "tool osu_allreduce before and allreduce.py after"),
        (cell(times(5.0), facts={"memory": "guarded"}), "memory guarded before and host after"),
    ],
)
def test_the_unlike_is_refused_with_the_reason(then: CellSummary, why: str) -> None:
    (limit,) = held(past(then))[POINT]
    assert (limit.values, limit.lacks, limit.owed) == ((), why, True)


def test_what_is_not_known_is_like_anything() -> None:
    unknown = cell(times(5.0, ranks=0), tool="", facts={})
    assert held(past(unknown))[POINT][0].values


def test_of_several_runs_only_the_like_count() -> None:
    runs = (past(cell(times(5.0, ranks=4))), past(cell(times(6.0))))
    assert held(*runs)[POINT][0].values == (6.0,)


@pytest.mark.parametrize(
    ("point", "why"),
    [
        (OTHER, "this run does not measure it"),
        (MessagePoint(8, "int8"), "int8 before and float32 after"),
        (MessagePoint(8, "float32", "in"), "float32 in place before and float32 after"),
    ],
)
def test_a_number_that_this_run_does_not_have_is_owed(point: MessagePoint, why: str) -> None:
    found = held(past(cell(times(5.0), times(5.0, point=point))))
    assert (found[point][0].lacks, found[point][0].owed) == (why, True)
    assert found[POINT][0].values


def test_a_number_that_hardly_any_run_had_is_not_owed() -> None:
    runs = [past(cell(times(5.0))) for _ in range(4)]
    assert held(*runs, past(cell(times(5.0), times(5.0, point=OTHER)))).keys() == {POINT}


def test_what_the_baseline_does_not_have_is_only_noted() -> None:
    found = held(past(cell(times(5.0))), points=(POINT, OTHER))
    assert (found[OTHER][0].lacks, found[OTHER][0].owed) == ("it has no such number", False)
    nowhere = held(past(cell(times(5.0), scenario="another")))
    assert [(limit.lacks, limit.owed) for limit in nowhere[POINT]] == [("it has no such cell", False)]
    failed = held(past(cell(times(5.0), kind=Kind.CRASH, verdict=Verdict.NEW)))
    assert [(limit.lacks, limit.owed) for limit in failed[POINT]] == [("the cell did not work there (crash)", False)]


def test_runs_that_were_slow_count_only_where_none_passed() -> None:
    slow = past(cell(times(9.0), kind=Kind.SLOW, verdict=Verdict.NEW))
    assert held(slow)[POINT][0].values == (9.0,)
    assert held(slow, past(cell(times(5.0))))[POINT][0].values == (5.0,)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_no_number(value: float) -> None:
    bad = replace(times(5.0), value=value)
    assert held(past(cell(bad)))[POINT][0].lacks == "it has no such number"


def test_what_is_not_timed_has_no_limits() -> None:
    assert held(past(cell(times(5.0))), measured=False) == {}


def test_facts_of_the_newest_run_in_which_it_worked() -> None:
    runs = (past(cell(kind=Kind.CRASH, facts={"openmpi": "6"})), past(cell(times(1.0))))
    assert Baseline(Side("x", runs)).facts(asked()) == FACTS
    assert Baseline(Side("x", ())).facts(asked()) == {}


Find = Callable[..., Baseline]


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    """Find a baseline for a run over `smoke` with a cell `cell`; the runs are put into the history."""
    monkeypatch.chdir(tmp_path)
    places = RunLocations(tmp_path / "reports", tmp_path / "reports" / "history.sqlite")

    def look(name: str, *runs: RunSummary, cells: Sequence[tuple[str, str]] = (("smoke", "cell"),)) -> Baseline:
        for run in runs:
            history.put(places.history, run)
        return baseline.find_baseline(name, places, [SMOKE], cells)

    return look


def run(ident: str, *cells: CellSummary, started: float = 1.0, **changes: Any) -> RunSummary:
    return past(*(cells or (cell(times(5.0, 6.0, 7.0)),)), id=ident, started=started, **changes)


def test_by_id_and_by_number(find: Find) -> None:
    runs = [run(f"r{place}", started=float(place)) for place in range(1, 6)]
    assert find("r2", *runs).name == "baseline r2"
    several = find("last:3")
    assert several.name == "baseline last:3 (3 runs)"
    assert [one.id for one in several.side.runs] == ["r5", "r4", "r3"]
    assert [m.samples for m in several.side.runs[0].cells[0].measurements] == [(5.0, 6.0, 7.0)]


def test_a_history_file_stands_for_its_newest_run_of_the_matrix(find: Find, tmp_path: Path) -> None:
    other = MatrixFile("other", "o.yaml", "1" * 64)
    find("r1", run("r1"), run("r2", started=2.0), run("r3", started=3.0, matrices=(other,)))
    file = (tmp_path / "reports" / "history.sqlite").rename(tmp_path / "nightly.sqlite")
    assert find(str(file)).name == "baseline r2"
    assert find("nightly.sqlite").name == "baseline r2"


def test_it_is_kept_with_the_run_and_may_be_named_by_its_file(find: Find, tmp_path: Path) -> None:
    found = find("r1", run("r1"))
    kept = found.save(tmp_path)
    assert kept.name == "baseline.json"
    assert baseline.saved_baseline(tmp_path) == found
    assert find(str(kept)) == found
    assert baseline.saved_baseline(tmp_path / "reports") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "not a baseline that a run has kept"),
        ("{", r"not a baseline that a run has kept \(Expecting"),
        ('{"schema": 1, "side": {"name": 1}}', r"not a baseline that a run has kept \(Side"),
        ('{"schema": 9, "side": {}}', r"written by a newer version \(schema 9, known: 1\)"),
    ],
)
def test_a_file_that_is_no_kept_baseline(find: Find, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(UsageError, match=f"^b.json: {told}"):
        find("b.json")
    assert (tmp_path / "b.json").read_text() == text


def test_another_matrix_is_named(find: Find) -> None:
    elsewhere = run("r1", cell(times(1.0), matrix="aws"), matrices=(MatrixFile("aws", "aws.yaml", "1" * 64),))
    with pytest.raises(UsageError, match=r"^baseline r1: it is of another matrix \(aws\) than this run \(smoke\)$"):
        find("r1", elsewhere)


def test_other_cells_and_no_numbers_are_named(find: Find) -> None:
    with pytest.raises(UsageError, match=r"^baseline r1: it has no cell of smoke that this run has$"):
        find("r1", run("r1", cell(times(1.0), scenario="gone")))
    with pytest.raises(UsageError, match=r"^baseline r2: it has no number of any cell that this run has$"):
        find("r2", run("r2", cell(kind=Kind.CRASH, verdict=Verdict.NEW)))


@pytest.mark.parametrize("name", ["nothing", "last:3", "latest", "/no/where"])
def test_what_is_not_there(find: Find, name: str) -> None:
    with pytest.raises(HetgpuError, match="history"):
        find(name)


def test_a_damaged_history_is_named_and_left_as_it_is(find: Find, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    file = tmp_path / "reports" / "history.sqlite"
    for data in (b"notes\n" * 100, b"SQLite format 3\0" + b"x" * 5000):
        file.write_bytes(data)
        for name in ("last:3", "r1", str(file)):
            with pytest.raises(HetgpuError, match=r"history\.sqlite"):
                find(name)
        assert file.read_bytes() == data
        assert [path.name for path in file.parent.iterdir()] == ["history.sqlite"]


def test_remarks_on_what_may_explain_a_difference() -> None:
    same = Baseline(Side("r1", (run("r1"),)))
    assert list(baseline.remarks(same, [SMOKE], "vm")) == []
    edited = replace(SMOKE, sha256="2" * 64)
    assert list(baseline.remarks(Baseline(replace(same.side, note="a note")), [edited], "other")) == [
        "a note",
        "baseline r1: the file of the matrix smoke is not the same any more",
        "baseline r1: it is of another machine (vm)",
    ]


def test_what_is_kept_holds_the_times_alone(find: Find, tmp_path: Path) -> None:
    more = Measurement("busbw", 1.0, "GB/s", POINT, 2, (1.0, 1.1))
    kept = find("r1", run("r1", cell(times(5.0), more), cell(times(1.0), scenario="gone"))).save(tmp_path)
    (only,) = json.loads(kept.read_text())["side"]["runs"][0]["cells"]
    assert [one["metric"] for one in only["measurements"]] == ["latency"]


FOREIGN = ExternalProgram(("osu_bw",), "osu", ranks=2)


def test_a_program_of_no_certain_type_is_held_against_the_type_it_had() -> None:
    found = held(past(cell(times(5.0), tool="osu_latency 7.4")), points=(replace(POINT, dtype=""),), external=FOREIGN)
    (limit,) = found[POINT]
    assert (limit.tool, limit.lacks) == ("osu_latency 7.4", "")
    assert limit.values == (5.0,)
    assert found.keys() == {POINT}


def test_ranks_are_those_that_a_program_counts() -> None:
    four = cell(times(5.0, ranks=4), tool="osu_latency 7.4")
    assert held(past(four), external=FOREIGN)[POINT][0].lacks == "ranks 4 before and 2 after"
    assert held(past(four), external=replace(FOREIGN, ranks=4))[POINT][0].values


def test_a_bandwidth_of_messages_tells_their_time_where_no_latency_does() -> None:
    stream = Measurement("bandwidth", 2.0, "GB/s", OTHER, 2)
    found = held(past(cell(stream, tool="osu_bw 7.4")), points=(OTHER,), operation="send_recv", external=FOREIGN)
    assert [(one.metric, one.values) for one in found[OTHER]] == [("bandwidth", (2.0,))]
    both = cell(stream, times(900.0, point=OTHER), tool="ucx_perftest")
    limits = held(past(both), points=(OTHER,), external=FOREIGN)[OTHER]
    assert {one.metric: one.values for one in limits} == {"bandwidth": (2.0,), "latency": (900.0,)}


def test_every_number_of_ones_own_program_with_a_direction() -> None:
    here = MessagePoint(0, "none")
    numbers = (
        Measurement("loop", 2.0, "s", here, 0, (1.9, 2.0, 2.1)),
        Measurement("samples", 30.0, "1/s", here, 0),
        Measurement("energy", 7.0, "Ry", here, 0),
    )
    own = ExternalProgram(("lmp",), "command", check=False)
    demand = {"points": (), "measured": False, "external": own}
    loop, samples, energy = held(past(cell(*numbers, tool="lmp")), **demand)[here]
    assert (loop.metric, loop.values, loop.unit, loop.better, loop.owed) == ("loop", (1.9, 2.0, 2.1), "s", LOWER, True)
    assert (samples.values, samples.better) == ((30.0,), HIGHER)
    assert (energy.values, energy.owed) == ((), False)
    assert "set `better: lower` or `better: higher`" in energy.lacks
    assert held(past(cell(scenario="another")), **demand)[EVERY][0].lacks == "it has no such cell"
