"""What ranks do, and what they owe for it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pytest_hetgpu.model import Point
from pytest_hetgpu.registry import find, names
from pytest_hetgpu.suite import PACKAGE
from pytest_hetgpu.workloads.base import ITEM_BYTES, Workload


def workload(kind: str, **settings: Any) -> Workload:
    found = find("workloads", kind, Workload)  # type: ignore[type-abstract]
    return found(found.Settings.model_validate(settings))


@pytest.mark.parametrize("kind", names("workloads"))
def test_every_workload_has_its_program_and_owes_points(kind: str) -> None:
    made = workload(kind)
    assert (PACKAGE / "programs" / made.program()[0]).is_file()
    assert made.points()
    assert made.operation


def test_a_sweep_tells_its_program_what_it_owes() -> None:
    made = workload("allreduce", sizes=["8", "1K"], dtype=["int8", "float64"], iterations="3", warmup="0")
    assert made.program() == (
        *("allreduce.py", "--sizes", "8,1024", "--dtypes", "int8,float64", "--iterations", "3", "--warmup", "0"),
    )
    assert made.points() == (Point(8, "int8"), Point(1024, "int8"), Point(8, "float64"), Point(1024, "float64"))


def test_a_sweep_without_settings_is_8_bytes_to_4_mib() -> None:
    points = workload("send_recv").points()
    assert (points[0], points[-1], len(points)) == (Point(8, "float32"), Point(4 << 20, "float32"), 20)


def test_a_guarded_send_is_one_small_message_checked_and_not_timed() -> None:
    made = workload("guarded_send")
    assert (made.points(), made.measured) == ((Point(64, "float32"),), False)
    assert made.program() == (
        *("guarded_send.py", "--sizes", "64", "--dtypes", "float32", "--iterations", "1", "--warmup", "0"),
    )


@pytest.mark.parametrize("kind", ["send_recv", "guarded_send"])
def test_pairs_need_an_even_world(kind: str) -> None:
    made = workload(kind)
    assert made.unsuitable(4) is None
    assert made.unsuitable(3) == "needs an even number of ranks, this placement has 3"


def test_an_allreduce_takes_any_world() -> None:
    assert [workload("allreduce").unsuitable(ranks) for ranks in (1, 2, 3)] == [None, None, None]


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_sizes_are_whole_elements(dtype: str) -> None:
    size = ITEM_BYTES[dtype]
    assert workload("allreduce", sizes=str(size), dtype=dtype).points() == (Point(size, dtype),)
    if size > 1:
        with pytest.raises(ValidationError, match=f"size {size + 1} is not a whole number of {dtype}"):
            workload("allreduce", sizes=[str(size), str(size + 1)], dtype=dtype)


@pytest.mark.parametrize(
    "settings", [{"iterations": "0"}, {"warmup": "-1"}, {"size": "8"}, {"dtype": "half"}, {"dtype": [["int8"]]}]
)
def test_what_no_sweep_takes(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        workload("send_recv", **settings)
