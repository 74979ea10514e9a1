"""What a cell's line in the terminal says of its measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.session.terminal.lines import best
from pytest_hetgpu.session.terminal.results import TerminalReporter
from pytest_hetgpu.store.properties import CellProperties
from tests.reporting.report_samples import scenario


def said(**measurements: float) -> str:
    names = {name.replace("_at_", "[").replace("_", ",") + "]": value for name, value in measurements.items()}
    return best(CellProperties("cell", "matrix", Kind.PASSED, Verdict.OK, measurements=names))


def test_the_best_bandwidth_and_the_smallest_latency() -> None:
    found = said(busbw_at_8_int8=0.5, busbw_at_1024_int8=2.0, latency_at_8_int8=3.0, latency_at_1024_int8=9.0)
    assert found == "busbw 2.00 GB/s at 1K int8, latency 3.00 us at 8"


def test_without_a_bus_bandwidth_the_one_that_there_is() -> None:
    assert said(bandwidth_at_8_int8=0.5, bandwidth_at_64_int8=0.25) == "bandwidth 0.500 GB/s at 8 int8"
    names = {"bidirectional_bandwidth[64,int8]": 2.0, "message_rate[64,int8]": 9.0}
    found = best(CellProperties("cell", "matrix", Kind.PASSED, Verdict.OK, measurements=names))
    assert found == "bidirectional bandwidth 2.00 GB/s at 64 int8"


def test_in_place_is_told() -> None:
    found = said(busbw_at_64_int8=1.0, busbw_at_64_int8_in=2.0, latency_at_64_int8=3.0, latency_at_64_int8_in=2.0)
    assert found == "busbw 2.00 GB/s at 64 int8 in place, latency 2.00 us at 64"


def test_a_barrier_has_a_latency_without_a_size() -> None:
    assert said(latency_at_0_none=4.5) == "latency 4.50 us"


def test_a_programs_own_metric_has_its_unit_and_small_numbers_their_digits() -> None:
    measured = {"loop[0,none]": 3.81, "steps[0,none]": 98765.4, "energy[0,none]": -15.8, "latency[0,int8]": 0.0312}
    units = {"loop": ("s", ""), "steps": ("timesteps/s", ""), "energy": ("Ry", "lower")}
    pairs = CellProperties("c", "m", Kind.PASSED, Verdict.OK, measurements=measured, units=units)
    assert best(pairs) == "loop 3.81 s, steps 98765 timesteps/s"
    only = replace(pairs, measurements={"energy[0,none]": -15.8})
    assert best(only) == "energy -15.8 Ry"
    assert best(replace(only, measurements={"latency[0,int8]": 0.0312})) == "latency 0.0312 us"


def test_a_bandwidth_is_told_as_a_share_of_the_wire() -> None:
    pairs = CellProperties("c", "m", Kind.PASSED, Verdict.OK, measurements={"busbw[1024,int8]": 0.42}, link=1.0)
    assert best(pairs) == "busbw 0.420 GB/s at 1K int8 (42 % of the wire)"
    assert best(replace(pairs, link=0.35)) == "busbw 0.420 GB/s at 1K int8 (120 % of the wire)"


def test_each_wire_is_told_once_at_the_end_with_the_last_word_on_it() -> None:
    cells = [scenario(f"{placement}-ucx-{workload}") for placement in ("mixed", "same") for workload in ("a", "b", "c")]
    live = TerminalReporter(None, cells, Path())
    blind = CellProperties("", "aws", Kind.PASSED, Verdict.OK, link_text="not known: node1: the container ended")
    seen = [
        replace(blind, link_text="not known: node1: gone"),
        replace(blind, link=0.047812, link_text="pump 1, 1 stream"),
        replace(blind, link_text=""),
        *(blind, blind, blind),
    ]
    live.seen.update({("aws", cell.label): pairs for cell, pairs in zip(cells, seen, strict=True)})
    assert list(live.links()) == [
        ("wire of mixed: 0.0478 GB/s, pump 1, 1 stream", {}),
        ("wire of same: not known: node1: the container ended", {"yellow": True}),
    ]


class Writer:
    """As much of pytest's terminal as the summary needs."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_sep(self, sep: str, title: str) -> None:
        self.lines.append(f"{sep} {title}")

    def write_line(self, line: str, **_: Any) -> None:
        self.lines.append(line)


def test_a_folder_that_is_gone_is_not_named_as_the_place_of_reports(tmp_path: Path) -> None:
    for there in (tmp_path, tmp_path / "gone"):
        live, writer = TerminalReporter(None, [], there), Writer()
        live.trouble.append("error: it was deleted")
        live.pytest_terminal_summary(writer)
        assert any(line.startswith("reports: ") for line in writer.lines) is there.exists()
        assert "error: it was deleted" in writer.lines
