"""Common behaviour of all parsers: none raises, or returns an invalid number."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_hetgpu.extensions.output_patterns import CommandSettings
from pytest_hetgpu.extensions.readers import base
from pytest_hetgpu.extensions.readers.base import OutputParser, ParseRequest, factor, measurements, number
from pytest_hetgpu.extensions.readers.osu import OsuParser
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, ExitMeaning, Quantity
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind
from tests.extensions.readers.feeding import SAMPLES, read
from tests.extensions.readers.nccl_text import banner, document, footer, header, row, written

NCCL = banner() + header() + row(8, "9.02", "0.00", "0.00", "0", "8.96", "0.00", "0.00", "N/A") + footer()
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(SAMPLES.glob("*.log"))] + [NCCL, written(document())]
PIECES = sorted({piece for text in TEXTS for line in text.splitlines() for piece in line.split(" ")})
NUMBERS = (
    "nan",
    "-nan",
    "inf",
    "-inf",
    "1e999",
    "-1",
    "1e-400",
    "9" * 400,
    "0x10",
    "1_000",
    "\u0663",
    "1e5",
    "N/A",
    "",
)

ANYTHING = st.one_of(
    st.text(max_size=60),
    st.sampled_from([line for text in TEXTS for line in text.splitlines()]),
    st.lists(st.sampled_from([*PIECES, *NUMBERS]), max_size=24).map(" ".join),
)


def reader(name: str, asked: ParseRequest | None = None) -> OutputParser:
    given_settings = (
        CommandSettings.model_validate({"patterns": [{"pattern": r"(?P<size>\S+)\s+(?P<value>\S+)"}]})
        if name == "command"
        else None
    )
    return find("readers", name, OutputParser)(asked, given_settings)  # type: ignore[type-abstract]


def sound(found: BenchmarkResult) -> None:
    for one in found.rows:
        for value, _ in one.figures.values():
            assert math.isfinite(value)
            assert value >= 0
        assert one.point.size >= 0
        assert one.wrong is None or one.wrong >= 0
        assert one.iterations is None or one.iterations >= 0
    assert all(math.isfinite(item.value) for item in measurements(found))
    assert all("\n" not in said for said in found.warnings)


@pytest.mark.parametrize("name", names("readers"))
@settings(max_examples=60, deadline=None)
@given(lines=st.lists(ANYTHING, max_size=30), ranks=st.one_of(st.none(), st.integers(0, 9)), code=st.integers(-15, 255))
def test_none_raises_whatever_the_lines_are(name: str, lines: list[str], ranks: int | None, code: int) -> None:
    taking = reader(name, ParseRequest(("prog", "-t", "tag_lat", "-s", "8"), name, (), ranks, "allreduce"))
    for index, line in enumerate(lines, 1):
        taking.feed(line, index)
    found = taking.finish()
    sound(found)
    exited = taking.meaning_of_exit(code, found)
    assert exited is not None if code else exited is None or found.wrong or found.failed


@pytest.mark.parametrize("name", names("readers"))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_none_raises_on_what_programs_print_with_something_changed(name: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    at, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
    sound(read_with(name, text[:at] + data.draw(st.sampled_from(NUMBERS)) + text[at + length :]))


def read_with(name: str, text: str) -> BenchmarkResult:
    taking = reader(name, ParseRequest(("prog", "-s", "8"), name, (), 2))
    for index, line in enumerate(text.splitlines(), 1):
        taking.feed(line, index)
    return taking.finish()


@pytest.mark.parametrize("name", [name for name in names("readers") if name != "command"])
def test_no_reader_takes_another_program_s_output_for_its_own(name: str) -> None:
    own = {
        "osu": "osu",
        "mpi4py_bench": "mpi4py",
        "ucx_perftest": "ucx_perftest",
        "nccl_tests": "nccl",
        "imb": "imb",
    }.get(name, "ucc")
    for path in sorted(SAMPLES.glob("*.log")):
        if not path.name.startswith(own):
            assert read_with(name, path.read_text(encoding="utf-8")).rows == (), path.name


@pytest.mark.parametrize("name", names("readers"))
def test_readers_share_nothing_and_say_that_there_was_nothing(name: str) -> None:
    assert reader(name).finish().warnings
    assert reader(name).finish() == reader(name).finish()


def test_memory_does_not_grow_with_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_ROWS", 10)
    text = "# OSU MPI Latency Test v7.0\n# Size          Latency (us)\n" + "8   1.0\n" * 50 + "x" * 100_000
    found = read("osu", text)
    assert len(found.rows) == 10
    assert "more than 10 rows: the rest is not read (line 13 and 39 more)" in found.warnings
    strange = "# OSU MPI Latency Test v7.0\n" + "".join(f"# Size {name}(us)\n" for name in range(500))
    assert len(read("osu", strange).warnings) <= 51


def test_the_samples_are_ours_to_show() -> None:
    told = (SAMPLES / "README.md").read_text(encoding="utf-8")
    unknown = [path.stem for path in SAMPLES.glob("*.log") if path.stem.split("-")[0] not in told]
    assert unknown == []
    assert isinstance(SAMPLES, Path)


@pytest.mark.parametrize(
    ("token", "value"),
    [
        *(("1", 1.0), ("1.50", 1.5), (".5", 0.5), ("1e+06", 1e6), ("-2", -2.0), ("2.", 2.0), ("1E3", 1000.0)),
        *(("", None), ("1_0", None), ("0x1", None), ("1e", None), ("1.2.3", None), ("\u0661", None), ("9" * 99, None)),
    ],
)
def test_numbers(token: str, value: float | None) -> None:
    assert number(token) == value


@pytest.mark.parametrize("token", ["nan", "-nan", "NaN", "inf", "-inf", "Infinity", "1e999"])
def test_numbers_that_are_none_are_told_from_words(token: str) -> None:
    found = number(token)
    assert found is not None
    assert not math.isfinite(found)


@pytest.mark.parametrize(
    ("operation", "ranks", "value"),
    [
        *(("allreduce", 4, 1.5), ("alltoall", 4, 0.75), ("broadcast", 4, 1.0), ("send_recv", 2, 1.0)),
        *(("allreduce", 1, 0.0), ("barrier", 4, None), ("iallreduce", 4, None), ("", 4, None)),
    ],
)
def test_factors(operation: str, ranks: int, value: float | None) -> None:
    assert factor(operation, ranks) == value


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        *((("p", "-s", "8"), "8"), (("p", "-s8"), "8"), (("p", "--size=8"), "8"), (("p", "--size", "8"), "8")),
        *((("p", "-s"), ""), (("p",), ""), (("p", "--sizes=8"), ""), (("p", "--s=8"), "")),
    ],
)
def test_options_of_a_command(argv: tuple[str, ...], value: str) -> None:
    assert ParseRequest(argv).option("-s", "--size") == value


def test_owed_points() -> None:
    timed, empty = MessagePoint(8, "int8"), MessagePoint(16, "int8")
    latency = {"latency": Quantity(1.0, "s")}
    found = BenchmarkResult(
        rows=(BenchmarkRow("allreduce", timed, 2, latency), BenchmarkRow("allreduce", empty, 2, {}, wrong=0))
    )
    assert found.missing([timed, empty]) == (empty,)
    assert found.unchecked([timed, empty]) == (timed,)


def test_repeats_of_a_point_are_one_measurement() -> None:
    rows = tuple(
        BenchmarkRow("allreduce", MessagePoint(8, "int8"), 2, {"latency": Quantity(seconds, "s")})
        for seconds in (1e-6, 2e-6)
    )
    (latency,) = (item for item in measurements(BenchmarkResult(rows=rows)) if item.metric == "latency")
    assert latency.value == pytest.approx(1.5)
    assert latency.samples == pytest.approx((1.0, 2.0))


@pytest.mark.parametrize("change", ["tool", "version", "memory", "operation", "ranks", "dtype", "place"])
def test_what_must_be_equal_before_rows_are_compared(change: str) -> None:
    """Never the size: a comparison may be of several."""
    fields = {"tool": "a", "version": "1", "memory": "host", "operation": "x", "ranks": 2, "dtype": "int8", "place": ""}
    other = {**fields, change: 3 if change == "ranks" else "other"}
    bases = []
    for one in (fields, other):
        measured = BenchmarkRow(
            str(one["operation"]), MessagePoint(8, str(one["dtype"]), str(one["place"])), int(str(one["ranks"])), {}
        )
        reading = BenchmarkResult(str(one["tool"]), str(one["version"]), memory=str(one["memory"]))
        bases.append(reading.comparison_key(measured))
    assert bases[0] != bases[1]


def test_exit_codes() -> None:
    assert OsuParser.meaning_of_exit(0, BenchmarkResult()) is None
    assert OsuParser.meaning_of_exit(3, BenchmarkResult()) == ExitMeaning(Kind.ERROR, "exit code 3")
    wrong = BenchmarkResult(rows=(BenchmarkRow("x", MessagePoint(8, "int8"), 2, {}, wrong=1),))
    assert OsuParser.meaning_of_exit(0, wrong) == ExitMeaning(Kind.WRONG_RESULT, "data failed its check")
