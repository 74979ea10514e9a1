"""Errors are part of the product: one per mistake, with its line, the value found, and the known values."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.matrix import COMMON
from pytest_hetgpu.config.matrix.values import _all_settings
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.extensions.registry import names

MatrixErrors = Callable[..., list[str]]

BASE = """\
name: t
hardware:
  cpu: {platform: cpu}
axes:
  placement:
    two: [cpu, cpu]
  transport:
    ob1: {btl: [tcp, self]}
    ucx-tcp: {family: ucx}
  workload:
    allreduce: {sizes: 8}
    pairs: {kind: send_recv, sizes: 8}
"""

SETTINGS = COMMON.union(*(settings.model_fields for settings in _all_settings()))
# A variant is its file: no list of them or their settings is written anywhere.
LISTS = {
    "WORKLOADS": names("workloads"),
    "SETTINGS and over": sorted(SETTINGS),
    "SETTINGS": sorted(SETTINGS - {"over"}),
}


def table() -> Any:
    text = Path(__file__).with_name("matrix_errors.yaml").read_text(encoding="utf-8")
    for word, known in LISTS.items():
        text = text.replace(word, ", ".join(known))
    return yaml.safe_load(text)


TABLE: dict[str, dict[str, Any]] = table()
CASES = {f"{section}: {name}": case for section, cases in TABLE.items() for name, case in cases.items()}


def changed(old: str, new: str) -> str:
    before, found, after = BASE.rpartition(old)
    assert found, f"{old!r} is not in the matrix that the cases change"
    return f"{before}{new}{after}"


def test_the_matrix_that_the_cases_change_is_good(matrix_errors: MatrixErrors) -> None:
    assert matrix_errors(BASE) == []


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_and_what_is_said_of_it(matrix_errors: MatrixErrors, case: str) -> None:
    old, new, told = (CASES[case][key] for key in ("old", "new", "told"))
    assert matrix_errors(new if old == "all of it" else changed(old, new), HOME="/") == told


def test_errors_are_for_people() -> None:
    for case in CASES.values():
        for error in case["told"]:
            assert re.match(r"m\.yaml:\d+: ", error)
            # Neither patterns, nor types of ours or pydantic's, nor Python's words for what YAML calls otherwise.
            assert not re.search(r"\^\[|Input should|\bNone\b|\bdict\b|\btuple\b|Shape|pydantic|Error", error)


def test_all_mistakes_of_a_file_are_told_at_once_in_the_order_of_lines(matrix_errors: MatrixErrors) -> None:
    text = BASE.replace("platform: cpu", "platform: cpi").replace("btl:", "blt:").replace("sizes: 8}", "sizes: x}")
    assert [error.split(": ")[0] for error in matrix_errors(text)] == [
        "m.yaml:3",
        "m.yaml:8",
        "m.yaml:11",
        "m.yaml:12",
    ]


def test_more_than_twenty_are_counted(matrix_errors: MatrixErrors) -> None:
    told = matrix_errors(BASE + "".join(f"unknown{number}: 1\n" for number in range(50)))
    assert len(told) == 21
    assert told[-1] == "m.yaml: ... and 30 more"


@pytest.mark.parametrize("key", ["count", "gbps", "sizes", "name", "unknown"])
def test_what_was_found_is_cut_where_it_is_long(matrix_errors: MatrixErrors, key: str) -> None:
    digits = "9" * 5000
    text = {
        "count": changed("{platform: cpu}", f"{{count: {digits}}}"),
        "gbps": changed("{platform: cpu}", f"{{fabric: {{gbps: {digits}}}}}"),
        "sizes": changed("{sizes: 8}", f"{{sizes: {digits}}}"),
        "name": changed("name: t", f"name: {digits}"),
        "unknown": changed("name: t", f"name: t\n? {digits}\n: 1"),
    }[key]
    (told,) = matrix_errors(text)
    assert "99999" in told
    assert len(told) < 700


def test_a_variable_that_is_no_text(matrix_errors: MatrixErrors) -> None:
    text = BASE.replace("platform: cpu", 'arch: "${ARCH}"')
    assert matrix_errors(text, ARCH="caf\udce9") == ["m.yaml:3: environment variable 'ARCH' is not UTF-8 text"]


def test_what_stands_on_one_anchor_is_told_where_it_is_written(matrix_errors: MatrixErrors) -> None:
    text = changed("{sizes: 8}", "*few").replace("hardware:", "x-few: &few\n  warmup: -1\nhardware:")
    assert matrix_errors(text) == ["m.yaml:3: axes.workload.allreduce.warmup must be at least 0, not '-1'"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "a: [", "- - -", "\0", "a: *b"])
def test_what_is_no_yaml_is_an_error_too(matrix_errors: MatrixErrors, text: str) -> None:
    (told,) = matrix_errors(text)
    assert told.startswith("m.yaml:")


def test_values_that_disagree_only_in_excluded_cells_are_fine(matrix_errors: MatrixErrors) -> None:
    text = (
        BASE.replace("allreduce: {sizes: 8}", "allreduce: {sizes: 8, env: {A: 1}}")
        + "  tuning: {a: {}, b: {env: {A: 2}}}\n"
    )
    assert len(matrix_errors(text)) == 1
    assert matrix_errors(text + "exclude:\n  - {workload: allreduce, tuning: b, reason: they disagree}\n") == []


def test_placements_may_disagree_with_what_they_never_meet(matrix_errors: MatrixErrors) -> None:
    # The first placement of the file is the one that disagrees, and is excluded there.
    text = BASE.replace("two: [cpu, cpu]", "two: {nodes: [cpu, cpu], timeout: 5}\n    three: [cpu]")
    text += "  patience: {short: {}, long: {timeout: 50}}\n"
    assert len(matrix_errors(text)) == 1
    assert matrix_errors(text + "exclude:\n  - {placement: two, patience: long, reason: it has its own}\n") == []


def test_values_that_agree_are_fine(matrix_errors: MatrixErrors) -> None:
    assert matrix_errors(BASE + "  sizes: {same: {sizes: 8}}\n") == []


def test_disagreements_of_values_beside_the_axes_are_found(matrix_errors: MatrixErrors) -> None:
    text = BASE.replace("axes:", "transports: {posix: {family: ucx, tls: posix, timeout: 1}}\naxes:")
    text += "  patience: {short: {}, long: {timeout: 2}}\n"
    assert matrix_errors(text) == []
    include = "include:\n  - {placement: two, transport: posix, workload: pairs, patience: long}\n"
    assert matrix_errors(text + include) == [
        "m.yaml:14: patience 'long' sets timeout to '2', but transport 'posix' (line 4) sets it to '1', "
        "and they meet in one cell"
    ]


def test_two_values_that_disagree_twice_are_told_of_both(matrix_errors: MatrixErrors) -> None:
    text = BASE.replace("allreduce: {sizes: 8}", "allreduce: {timeout: 1, iterations: 2}")
    assert len(matrix_errors(text + "  tuning: {a: {timeout: 5, iterations: 6}}\n")) == 2


class Foreign(BaseModel):
    """A shape with a kind of mistake that matrix_errors have no words of their own for."""

    when: datetime.date
    one: Literal["a", "b"] = "a"


def test_a_mistake_of_an_unforeseen_kind_is_told_in_pydantic_s_words() -> None:
    found = Diagnostics("m.yaml")
    node = source.parse("when: never\none: c\n")
    with pytest.raises(ValidationError) as caught:
        Foreign.model_validate(source.plain(node))
    found.invalid(caught.value, node, "x", Foreign)
    first, second = found.listed()
    assert first.startswith("m.yaml:1: x.when: 'never': Input should be a valid date")
    assert second == "m.yaml:2: x.one: unknown value 'c' (known: a, b)"


def test_errors_are_each_once_and_false_while_there_is_none() -> None:
    found = Diagnostics("m.yaml")
    assert not found
    found.add(3, "twice")
    found.add(3, "twice")
    found.take(MatrixError(["m.yaml:3: twice", "m.yaml:1: of another look"]))
    found.add(None, "of the file")
    found.add(2, "a\n  second   line")
    assert found
    assert found.listed() == (
        "m.yaml:2: a second line",
        "m.yaml:3: twice",
        "m.yaml:1: of another look",
        "m.yaml: of the file",
    )
