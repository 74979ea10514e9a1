"""Expansion of a matrix to cells: selection, order, names and rules."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.expand import LONGEST_ID, cell_id, expand

Reads = Callable[..., Matrix]
MatrixErrors = Callable[..., list[str]]

TEXT = """\
name: demo
hardware: {cpu: {}, gpu: {platform: rocm}}
transports:
  posix: {family: ucx, tls: posix}
axes:
  workload: {pairs: {kind: send_recv}, allreduce: {}}
  placement: {two: [cpu, cpu], mixed: [cpu, gpu]}
  tuning: {default: {}, zcopy: {env: {UCX_ZCOPY_THRESH: 0}}}
  transport: {ob1: {}, ucx-tcp: {family: ucx}}
"""


def ids(document: Matrix) -> list[str]:
    return [cell.id for cell in expand(document)]


def test_cells_come_in_file_order_with_the_main_axes_first(reads: Reads) -> None:
    cells = expand(reads(TEXT))
    assert cells[0].axes == ("placement", "transport", "workload", "tuning")
    assert [cell.id for cell in cells] == [
        f"{placement}-{transport}-{workload}-{tuning}"
        for placement in ("two", "mixed")
        for transport in ("ob1", "ucx-tcp")
        for workload in ("pairs", "allreduce")
        for tuning in ("default", "zcopy")
    ]
    assert cells[1].values == ("two", "ob1", "pairs", "zcopy")
    assert cells[1].value("tuning") == "zcopy"
    assert (cells[1].matrix, cells[1].label, cells[1].expectations, cells[1].excluded) == (
        "demo",
        cells[1].id,
        (),
        None,
    )


def test_ids_are_the_same_in_every_process(reads: Reads, tmp_path: Path) -> None:
    here = ids(reads(TEXT + "include:\n  - {placement: '*', transport: posix, workload: '*', tuning: zcopy}\n"))
    program = (
        "from pathlib import Path\n"
        "from pytest_hetgpu.config.matrix.reader import read\nfrom pytest_hetgpu.planning.expand import expand\n"
        "print(*(cell.id for cell in expand(read(Path('m.yaml'), {}))), sep='\\n')"
    )
    root = str(Path(__file__).resolve().parents[2])
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == here


def test_ids_are_unique_and_fit_folders_and_pytest(reads: Reads) -> None:
    found = ids(reads(TEXT + f"  sizes: [8, 1M, 8..64M]\n  {'x' * 80}: {{a.b+c_d-e: , {'y' * 80}: }}\n"))
    assert len(found) == len(set(found)) == 16 * 3 * 2
    for name in found:
        assert re.fullmatch(r"[A-Za-z0-9_.+-]+", name)
        assert len(name) <= LONGEST_ID


def test_a_long_id_is_cut_and_told_apart_by_a_hash() -> None:
    name = cell_id(["a" * 60, "b" * 60, "c"])
    assert name == "a" * 60 + "-" + "b" * 50 + "-d4290f53"
    assert len(name) == LONGEST_ID
    assert cell_id(["a" * 60, "b" * 60, "d"]) != name
    assert cell_id(["a" * 60, "b" * 59]) == "a" * 60 + "-" + "b" * 59


def test_an_excluded_cell_stays_with_the_reason_of_the_first_rule(reads: Reads) -> None:
    cells = expand(
        reads(
            TEXT
            + "exclude:\n"
            + "  - {placement: mixed, transport: ob1, reason: first, issue: 'https://example.org/1'}\n"
            + "  - where: {placement: 'm*', workload: [pairs]}\n    reason: second\n"
        )
    )
    assert len(cells) == 16
    reasons = {cell.id: cell.excluded.reason for cell in cells if cell.excluded}
    assert reasons == {
        "mixed-ob1-pairs-default": "first",
        "mixed-ob1-pairs-zcopy": "first",
        "mixed-ob1-allreduce-default": "first",
        "mixed-ob1-allreduce-zcopy": "first",
        "mixed-ucx-tcp-pairs-default": "second",
        "mixed-ucx-tcp-pairs-zcopy": "second",
    }


def test_an_include_is_an_exception_to_an_exclude_and_adds_cells_at_the_end(reads: Reads) -> None:
    cells = expand(
        reads(
            TEXT
            + "exclude:\n  - {placement: mixed, reason: none here}\n"
            + "include:\n"
            + "  - {placement: mixed, transport: ob1, workload: pairs, tuning: [zcopy, default]}\n"
            + "  - {placement: two, transport: posix, workload: '*', tuning: default}\n"
            + "  - {placement: {name: lone, nodes: [cpu]}, transport: ob1, workload: allreduce,\n"
            + "     tuning: {name: odd, timeout: 3}}\n"
        )
    )
    assert [cell.id for cell in cells if not cell.excluded and cell.value("placement") == "mixed"] == [
        "mixed-ob1-pairs-default",
        "mixed-ob1-pairs-zcopy",
    ]
    assert [cell.id for cell in cells[16:]] == [
        "two-posix-pairs-default",
        "two-posix-allreduce-default",
        "lone-ob1-allreduce-odd",
    ]


def test_expectations_of_a_cell_come_in_file_order(reads: Reads) -> None:
    cells = expand(
        reads(
            TEXT
            + "include:\n  - {placement: two, transport: posix, workload: pairs, tuning: zcopy}\n"
            + "expect:\n"
            + "  - {where: {transport: [posix, ob1], workload: pairs}, outcome: crash}\n"
            + "  - {where: {tuning: zcopy}, outcome: hang}\n"
        )
    )
    kinds = {cell.id: tuple(found.kinds[0] for found in cell.expectations) for cell in cells}
    assert kinds["two-ob1-pairs-default"] == (Kind.CRASH,)
    assert kinds["two-ob1-pairs-zcopy"] == (Kind.CRASH, Kind.HANG)
    assert kinds["mixed-ucx-tcp-allreduce-zcopy"] == (Kind.HANG,)
    assert kinds["two-ucx-tcp-pairs-default"] == ()
    assert kinds["two-posix-pairs-zcopy"] == (Kind.CRASH, Kind.HANG)


def test_an_excluded_cell_expects_nothing(reads: Reads) -> None:
    cells = expand(
        reads(
            TEXT
            + "exclude:\n  - {transport: ob1, workload: pairs, reason: slow}\n"
            + "expect:\n  - {where: {transport: ob1}, outcome: crash}\n"
        )
    )
    assert all(bool(cell.excluded) != bool(cell.expectations) for cell in cells if cell.value("transport") == "ob1")


def test_a_listed_number_can_be_named_as_it_is_written(reads: Reads) -> None:
    cells = expand(
        reads(
            TEXT
            + "  ranks_per_node: [1, 2]\n"
            + "include:\n  - {placement: two, transport: posix, workload: pairs, tuning: zcopy, ranks_per_node: 2}\n"
            + "exclude:\n  - {ranks_per_node: 2, placement: two, reason: two only}\n"
        )
    )
    excluded = [cell for cell in cells if cell.excluded]
    assert {cell.value("ranks_per_node") for cell in excluded} == {"ranks_per_node2"}
    assert cells[-1].id == "two-posix-pairs-zcopy-ranks_per_node2"


def test_two_cells_of_one_id_are_one_complaint_for_each_cause(matrix_errors: MatrixErrors) -> None:
    text = TEXT + "  one: {a: {}, a-b: {}}\n  two: {b-c: {}, c: {}}\n"
    assert matrix_errors(text) == [
        "m.yaml:11: one 'a' two 'b-c' and one 'a-b' two 'c' give two cells one id (two-ob1-pairs-default-a-b-c); "
        "rename a value"
    ]


def big(placements: int, transports: int, workloads: int) -> str:
    axes = {
        "placement": (placements, "[cpu, cpu]"),
        "transport": (transports, "{family: ucx, env: {A: 1}}"),
        "workload": (workloads, "{kind: allreduce, timeout: 5}"),
    }
    lines = ["name: big", "hardware: {cpu: {}}", "axes:"]
    for axis, (count, value) in axes.items():
        lines += [f"  {axis}:", *(f"    {axis[0]}{number}: {value}" for number in range(count))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "rules", ["", "exclude: [{transport: 't?', reason: x}]\nexpect: [{where: {workload: 'w1*'}, outcome: hang}]\n"]
)
def test_a_hundred_thousand_cells(reads: Reads, rules: str, record_property: Callable[[str, object], None]) -> None:
    document = reads(big(10, 100, 100) + rules)
    started = time.process_time()
    cells = expand(document)
    seconds = time.process_time() - started
    assert len({cell.id for cell in cells}) == len(cells) == 100_000
    del cells
    tracemalloc.start()
    try:
        expand(document)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    print(f"100,000 cells: {seconds:.2f} s, peak {peak:.0f} MB")
    record_property("expand_seconds", round(seconds, 2))
    record_property("expand_peak_mb", round(peak))
    # The time depends on the machine, what is kept in memory does not.
    assert peak < 200


MANY = "".join(f"  a{axis}: {{{', '.join(f'v{value}: {{}}' for value in range(100))}}}\n" for axis in range(5))


def test_too_many_cells_are_refused_before_they_are_made(matrix_errors: MatrixErrors) -> None:
    started = time.process_time()
    (error,) = matrix_errors(TEXT + MANY)
    assert time.process_time() - started < 5
    assert re.search(r"its axes make [\d,]+0,000,000,000 cells; at most 100,000 are allowed here", error)
    assert "--hetgpu-max-cells N" in error
    assert "100 a0 x 100 a1 x 100 a2 x 100 a3 x 100 a4" in error


def test_the_limit_counts_all_includes(reads: Reads) -> None:
    rows = "".join(
        f"  - {{placement: two, transport: posix, workload: pairs, tuning: zcopy, b: [{', '.join(values)}]}}\n"
        for values in (("v1", "v2"), ("v3", "v4"))
    )
    text = (
        TEXT
        + "  b: {v0: {}, v1: {}, v2: {}, v3: {}, v4: {}}\nexclude:\n  - {b: 'v[1-4]', reason: x}\ninclude:\n"
        + rows
    )
    count = len(expand(reads(text)))
    assert expand(reads(text), count)
    with pytest.raises(MatrixError, match=f"at most {count - 1} are allowed here"):
        expand(reads(text), count - 1)


def test_a_series_counts(reads: Reads) -> None:
    ranks = ", ".join(map(str, range(1, 21)))
    text = (
        "name: s\nhardware: {cpu: {}}\naxes:\n  placement: {one: [cpu, cpu]}\n  transport: {ob1: {}}\n"
        "  workload: {allreduce: {}}\nscaling:\n"
        f"  - {{placement: {{hardware: cpu, ranks_per_node: [{ranks}]}}, transport: ob1, workload: allreduce, "
        "kind: weak}\n"
    )
    assert len(expand(reads(text), 21)) == 21
    with pytest.raises(MatrixError, match="this include names 20 cells; at most 10 are allowed here"):
        expand(reads(text), 10)
    with pytest.raises(MatrixError, match="there are 21 cells with this include"):
        expand(reads(text), 20)
