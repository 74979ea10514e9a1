"""Series of cells over the number of nodes or ranks."""

from __future__ import annotations

from collections.abc import Callable

import jsonschema
import pytest
import yaml

from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.config.matrix.schema import matrix_schema
from pytest_hetgpu.model.scenario import Scaling
from pytest_hetgpu.planning.expand import expand

Reads = Callable[..., Matrix]
MatrixErrors = Callable[..., list[str]]

HEAD = """\
hardware: {cpu: {}, login: {}}
axes:
  placement: {pair: [cpu, cpu]}
  transport: {gloo: {}}
  workload:
    ddp_train: {batch: 64, samples: 512}
    pi_trapezoid: {}
    allreduce: {sizes: [8, 4M]}
    barrier: {}
    hello: {kind: mpi4py_bench, benchmark: helloworld, check: false}
    app: {kind: command, argv: [./app], check: false}
"""


def series(text: str) -> str:
    return f"{HEAD}scaling: {text}\n"


def test_a_series_adds_a_placement_for_each_number_of_nodes(reads: Reads) -> None:
    matrix = reads(
        series(
            "{placement: {hardware: cpu, nodes: [1, 2, 4], ranks_per_node: 2}, kind: weak, transport: gloo,"
            " workload: ddp_train}"
        )
    )
    cells = [cell for cell in expand(matrix) if cell.scaling]
    assert [cell.id for cell in cells] == [f"cpu-weak-{nodes}x2-gloo-ddp_train" for nodes in (1, 2, 4)]
    assert [cell.scaling for cell in cells] == [Scaling("cpu-weak", "weak", ranks) for ranks in (2, 4, 8)]
    settings = [matrix.settings(cell.values) for cell in cells]
    assert [(len(one.nodes), one.options.ranks_per_node) for one in settings] == [(1, 2), (2, 2), (4, 2)]
    assert {one.workload.scaling for one in settings} == {"weak"}


def test_a_series_over_ranks_on_each_node_may_have_a_name_and_further_settings(reads: Reads) -> None:
    matrix = reads(
        series(
            "{placement: {name: s, hardware: cpu, nodes: 2, ranks_per_node: [1, 8], timeout: 9, launch_from: login},"
            " kind: strong, transport: [gloo], workload: [ddp_train, pi_trapezoid]}"
        )
    )
    cells = [cell for cell in expand(matrix) if cell.scaling]
    assert [cell.values[0] for cell in cells] == ["s-strong-2x1", "s-strong-2x1", "s-strong-2x8", "s-strong-2x8"]
    last = matrix.settings(cells[-1].values)
    assert (last.options.timeout, last.options.ranks_per_node, last.launch_from) == (9.0, 8, "login")


@pytest.mark.parametrize(
    ("kind", "workload", "fraction"),
    [
        ("weak", "ddp_train", 0.8),  # the same time
        ("strong", "ddp_train", 0.8 * 8 / 2),  # a quarter of the time
        ("weak", "allreduce", 0.8),  # the same busbw
    ],
)
def test_an_efficiency_is_a_fraction_of_the_speed_of_the_smallest_cell(
    reads: Reads, kind: str, workload: str, fraction: float
) -> None:
    cells = expand(
        reads(
            series(
                f"{{placement: {{hardware: cpu, nodes: [1, 4], ranks_per_node: 2}}, kind: {kind}, transport: gloo,"
                f" workload: {workload}, reference: {{efficiency: {{4: 0.8}}}}}}"
            )
        )
    )
    small, large = (cell for cell in cells if cell.scaling)
    assert small.references == ()
    (reference,) = large.references
    assert (reference.of, reference.cell, reference.efficiency) == ("cell", small.id, 0.8)
    assert reference.fraction == pytest.approx(fraction)
    assert reference.tolerance == 0
    if workload == "allreduce":
        assert reference.min_size == 4 << 20


@pytest.mark.parametrize(
    ("kind", "unit", "fraction"),
    [("weak", "s", 0.8), ("strong", "s", 0.8 * 4), ("weak", "steps/s", 0.8 * 4), ("strong", "steps/s", 0.8 * 4)],
)
def test_an_efficiency_by_a_metric_of_ones_own(reads: Reads, kind: str, unit: str, fraction: float) -> None:
    one = (
        "{placement: {hardware: cpu, nodes: [1, 4], ranks_per_node: 2}, metric: x, transport: gloo, workload: app,"
        f" kind: {kind}, reference: {{efficiency: {{4: 0.8}}}}}}"
    )
    patterns = f"patterns: [{{pattern: 'x=(?P<value>.)', metric: x, unit: {unit}}}]"
    text = series(one).replace("argv: [./app],", f"argv: [./app], {patterns},")
    (reference,) = next(cell for cell in expand(reads(text)) if cell.scaling and cell.references).references
    assert (reference.metric, reference.efficiency) == ("x", 0.8)
    assert reference.fraction == pytest.approx(fraction)


PLACED = "placement: {hardware: cpu, nodes: [1, 2]}"


def test_weak_and_strong_series_of_one_hardware_are_side_by_side(reads: Reads) -> None:
    both = (f"{{{PLACED}, kind: {kind}, transport: gloo, workload: ddp_train}}" for kind in ("weak", "strong"))
    more = f"{{{PLACED}, kind: weak, transport: gloo, workload: pi_trapezoid}}"
    text = series(f"[{', '.join((*both, more))}]")
    cells = [cell.id for cell in expand(reads(text)) if cell.scaling]
    assert not list(jsonschema.Draft202012Validator(matrix_schema()).iter_errors(yaml.safe_load(text)))
    assert len(cells) == 6
    assert {cell.split("-")[1] for cell in cells} == {"weak", "strong"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "{placement: {hardware: cpu, nodes: 2}, kind: weak, transport: gloo, workload: ddp_train}",
            "list of two or more numbers either as nodes or as ranks_per_node",
        ),
        (
            "{placement: {hardware: cpu, nodes: [2, 1]}, kind: weak, transport: gloo, workload: ddp_train}",
            "the numbers must rise: 2, 1 do not",
        ),
        (
            "{placement: {hardware: gpu, nodes: [1, 2]}, kind: weak, transport: gloo, workload: ddp_train}",
            "unknown hardware 'gpu'",
        ),
        (f"{{{PLACED}, kind: week, transport: gloo, workload: ddp_train}}", "unknown value 'week'"),
        (f"{{{PLACED}, kind: weak, workload: ddp_train}}", "this series names no transport"),
        (f"{{{PLACED}, kind: weak, transport: , workload: ddp_train}}", "scaling.transport must be a name, a list"),
        (f"{{{PLACED}, kind: weak, transport: [], workload: ddp_train}}", "scaling.transport must not be empty"),
        (f"{{{PLACED}, kind: weak, transport: {{family: ucx}}, workload: ddp_train}}", "scaling.transport: a "),
        (
            f"{{{PLACED}, kind: weak, transport: {{name: u, family: ucx, tsl: tcp}}, workload: ddp_train}}",
            "unknown key 'tsl' in scaling.transport.u",
        ),
        (
            f"{{{PLACED}, kind: weak, transport: gloo, workload: barrier}}",
            "workload 'barrier' (barrier) has no scaling",
        ),
        (f"{{{PLACED}, kind: strong, transport: gloo, workload: allreduce}}", "(allreduce) has only weak scaling"),
        (f"{{{PLACED}, kind: strong, transport: gloo, workload: app}}", "give `metric`, the figure by which it scales"),
        (
            f"{{{PLACED}, kind: weak, metric: x, transport: gloo, workload: ddp_train}}",
            "metric is for workloads of kind",
        ),
        (f"{{{PLACED}, kind: weak, transport: gloo, workload: ddp_train, speed: 1}}", "unknown axis or key 'speed'"),
        (
            f"{{{PLACED}, kind: weak, transport: gloo, workload: ddp_train, reference: {{efficiency: {{3: 0.5}}}}}}",
            "efficiency: 3 is none of its numbers (2)",
        ),
        (
            f"{{{PLACED}, kind: weak, transport: gloo, workload: ddp_train, reference: {{efficiency: {{1: 0.5}}}}}}",
            "1 is the first, of which the others are a fraction",
        ),
        (
            f"{{{PLACED}, kind: weak, transport: gloo, workload: allreduce, reference: {{efficiency: {{2: 0.5}}}}}}",
            "one rank moves no data",
        ),
        (
            f"{{{PLACED}, kind: strong, metric: x, transport: gloo, workload: app,"
            " reference: {efficiency: {2: 0.5}}}",
            "workload 'app' measures nothing",
        ),
        (
            f"{{{PLACED}, kind: weak, transport: gloo, workload: hello, reference: {{efficiency: {{2: 0.5}}}}}}",
            "workload 'hello' measures nothing",
        ),
        (
            f"[{{{PLACED}, kind: weak, transport: gloo, workload: ddp_train}},"
            " {placement: {hardware: cpu, nodes: [2, 3], timeout: 9}, kind: weak, transport: gloo,"
            " workload: pi_trapezoid}]",
            "placement 'cpu-weak-2x1' is another one in line 12; give this series a name",
        ),
    ],
)
def test_errors_name_the_line_and_the_way_out(matrix_errors: MatrixErrors, text: str, error: str) -> None:
    found = matrix_errors(series(text))
    assert len(found) == 1, found
    assert error in found[0]
    assert "12: " in found[0]
