"""The summary's section on the bandwidth between nodes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from markdown_it import MarkdownIt

from pytest_hetgpu.model.bandwidth import LinkReport
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.reporting import bandwidth_table, report
from pytest_hetgpu.store import environment
from pytest_hetgpu.store.environment import PlacementFacts
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, PASSED, cell, run_cell

LINK = LinkBandwidth(2.5, "pump 1, 4 streams", ("node1", "node0"), 36.4)
MIXED = PlacementFacts("aws-mixed", {}, LinkReport(LINK))


def test_a_placement_has_its_limit_and_the_most_that_a_cell_got_of_it() -> None:
    better = replace(
        PASSED, wire=LINK, measurements=(Measurement("busbw", 2.0, "GB/s", MessagePoint(1 << 21, "int8"), 2),)
    )
    cells = [
        cell("mixed-ucx-send", replace(PASSED, wire=LINK)),
        cell("mixed-ucx-allreduce", better),
        cell("mixed-ob1-allreduce", replace(CRASHED, wire=LINK, measurements=PASSED.measurements)),
        cell("other-ob1-allreduce", replace(PASSED, wire=LinkBandwidth(0.1))),
    ]
    heading, table, legend = bandwidth_table.render(cells, [MIXED])
    assert heading == "## What the wire can carry"
    assert table.splitlines()[2] == (
        "| aws-mixed | 2.5 GB/s | pump 1, 4 streams, node1 to node0, round trip 36 us "
        "| 2 GB/s at 2M int8 | 80 % | mixed-ucx-allreduce |"
    )
    assert "1e9 bytes" in legend
    assert "<table>" in MarkdownIt().enable("table").render(table)


def test_more_than_the_wire_is_explained() -> None:
    fast = cell("mixed-ucx-send", replace(PASSED, wire=LinkBandwidth(0.5)))
    *_, explained = bandwidth_table.render(
        [fast], [replace(MIXED, link=LinkReport(LinkBandwidth(0.5, "pump 1, 1 stream")))]
    )
    assert explained.startswith("More than the wire carried")


def test_a_limit_that_is_not_known_says_why() -> None:
    _, table, _ = bandwidth_table.render([], [replace(MIXED, link=LinkReport(LinkBandwidth(why="node1: timed | out")))])
    assert table.splitlines()[2] == r"| aws-mixed | - | not known: node1: timed \| out | - | - | - |"


def test_without_any_there_is_no_section() -> None:
    assert list(bandwidth_table.render([], [PlacementFacts("aws-mixed", {})])) == []


def test_it_is_in_the_summary_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "reports")
    environment.write_link(folder.path, "aws-mixed", LinkReport(LINK))
    with closing(Journal(folder.path, "main")) as journal:
        run_cell(folder, journal, "mixed-ucx-send", replace(PASSED, wire=LINK))
    report.build(folder.path, "rerun {label}")
    summary = (folder.path / "summary.md").read_text()
    assert "## What the wire can carry" in summary
    assert "| 1.25 GB/s at 1M float32 | 50 % | mixed-ucx-send |" in summary
    assert "## What the nodes are" not in summary
    junit = (folder.path / "junit.xml").read_text()
    assert '<property name="of_wire[1048576,float32]" value="0.5"' in junit
