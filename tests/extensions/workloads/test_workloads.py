"""Workloads: the commands of ranks, and their required points."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from pytest_hetgpu.config.matrix.schema import matrix_schema
from pytest_hetgpu.extensions.package_data import PACKAGE
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.workloads.base import ITEM_BYTES, Workload
from pytest_hetgpu.model.records import MessagePoint

SUMS = {"allreduce", "reduce", "reduce_scatter"}
SPLIT = ("reduce_scatter", "allgather", "gather", "scatter", "alltoall")
SWEPT = SUMS | {*SPLIT, "broadcast", "send_recv", "bidirectional_send_recv", "guarded_send"}


def workload(kind: str, **settings: Any) -> Workload:
    found = find("workloads", kind, Workload)  # type: ignore[type-abstract]
    return found(found.Settings.model_validate(settings))


# What must be said of foreign programs in any case.
SAID: dict[str, dict[str, Any]] = {
    "imb": {"benchmark": "PingPong"},
    "command": {"argv": ["true"], "check": False},
    "osu": {"program": "osu_bw"},
    "ucc_perftest": {"check": False},
}


@pytest.mark.parametrize("kind", names("workloads"))
def test_every_workload_has_its_program_and_owes_points(kind: str) -> None:
    made = workload(kind, **SAID.get(kind, {}))
    assert (PACKAGE / "remote" / made.program()[0]).is_file()
    # What a user's own program measures is known when it has run.
    assert bool(made.points()) is (kind != "command")
    assert made.operation


def test_a_sweep_tells_its_program_what_it_owes() -> None:
    made = workload("allreduce", sizes=["8", "1K"], dtype=["int8", "float64"], iterations="3", warmup="0")
    assert made.program() == (
        *("allreduce.py", "--sizes", "8,1024", "--dtypes", "int8,float64", "--iterations", "3", "--warmup", "0"),
        *("--repeats", "5"),
    )
    assert made.points() == (
        MessagePoint(8, "int8"),
        MessagePoint(1024, "int8"),
        MessagePoint(8, "float64"),
        MessagePoint(1024, "float64"),
    )


def test_a_sweep_without_settings_is_8_bytes_to_4_mib() -> None:
    points = workload("send_recv").points()
    assert (points[0], points[-1], len(points)) == (MessagePoint(8, "float32"), MessagePoint(4 << 20, "float32"), 20)


def test_a_guarded_send_is_one_small_message_checked_and_not_timed() -> None:
    made = workload("guarded_send")
    assert (made.points(), made.measured) == ((MessagePoint(64, "float32"),), False)
    assert made.program() == (
        *("guarded_send.py", "--sizes", "64", "--dtypes", "float32", "--memory", "guarded"),
        *("--iterations", "1", "--warmup", "0"),
    )
    with pytest.raises(ValidationError):
        workload("guarded_send", memory="host")


def test_a_collective_tells_its_program_of_place_and_memory() -> None:
    made = workload("allgather", sizes="64", in_place="both", memory="guarded", iterations="3", warmup="1", repeats="1")
    assert made.program() == (
        *("allgather.py", "--sizes", "64", "--dtypes", "float32", "--in-place", "both", "--memory", "guarded"),
        *("--iterations", "3", "--warmup", "1"),
    )
    assert made.points() == (MessagePoint(64, "float32"), MessagePoint(64, "float32", "in"))
    assert workload("alltoall", sizes="64", in_place="true").points() == (MessagePoint(64, "float32", "in"),)
    assert workload("reduce", sizes="64", in_place=False).points() == (MessagePoint(64, "float32"),)


def test_a_barrier_has_one_point_without_data() -> None:
    made = workload("barrier", iterations="7", repeats="3")
    assert made.program() == ("barrier.py", "--iterations", "7", "--warmup", "5", "--repeats", "3")
    assert (made.points(), made.measured) == ((MessagePoint(0, "none"),), True)


@pytest.mark.parametrize("kind", SPLIT)
def test_every_size_must_divide_among_the_ranks(kind: str) -> None:
    made = workload(kind, sizes=["24", "64", "1K", "48"], dtype=["int8", "float32"])
    assert [made.unsuitable(ranks) for ranks in (1, 2)] == [None, None]
    assert made.unsuitable(3) == "divides every size among 3 ranks: no multiple of 3 bytes (3 int8) are 64, 1K"
    assert made.unsuitable(4) == "divides every size among 4 ranks: no multiple of 16 bytes (4 float32) is 24"
    assert workload(kind).unsuitable(16) is None
    assert workload(kind).unsuitable(3) == (
        "divides every size among 3 ranks: no multiple of 12 bytes (3 float32) are 64, 128, 256, 512, 1K and 12 more"
    )


@pytest.mark.parametrize("kind", sorted(SWEPT - set(SPLIT)))
def test_others_do_not_divide(kind: str) -> None:
    assert workload(kind, sizes="4", dtype="float32").unsuitable(4) is None


@pytest.mark.parametrize("kind", sorted(SUMS))
def test_sums_stay_in_the_range_of_their_type(kind: str) -> None:
    assert workload(kind, sizes=["16256"], dtype="int8").unsuitable(127) is None
    assert workload(kind, sizes=["1K"], dtype=["int32", "int8"]).unsuitable(128) == (
        "can sum int8 of at most 127 ranks, this placement has 128"
    )


@pytest.mark.parametrize("kind", sorted(SWEPT))
def test_half_precision_can_be_moved_and_not_summed(kind: str) -> None:
    if kind in SUMS:
        with pytest.raises(ValidationError, match="unknown dtype 'float16'"):
            workload(kind, sizes="64", dtype="float16")
    else:
        assert {point.dtype for point in workload(kind, sizes="64", dtype="float16").points()} == {"float16"}


def test_editors_learn_what_places_there_are() -> None:
    validator = jsonschema.Draft202012Validator(matrix_schema())

    def good(settings: dict[str, Any], kind: str = "gather") -> bool:
        axes = {"placement": {"a": ["cpu", "cpu"]}, "transport": {"ob1": None}, "workload": {kind: settings}}
        return bool(validator.is_valid({"hardware": {"cpu": None}, "axes": axes}))

    assert all(good({"in_place": place}) for place in (True, False, "both"))
    assert good({"memory": "guarded", "dtype": ["float16"]})
    assert not good({"in_place": "sometimes"})
    assert not good({"in_place": True}, "broadcast")
    assert not good({"sizes": 8}, "barrier")


@pytest.mark.parametrize("kind", ["send_recv", "bidirectional_send_recv", "guarded_send"])
def test_pairs_need_an_even_world(kind: str) -> None:
    made = workload(kind)
    assert made.unsuitable(4) is None
    assert made.unsuitable(3) == "needs an even number of ranks, this placement has 3"


def test_an_allreduce_takes_any_world() -> None:
    assert [workload("allreduce").unsuitable(ranks) for ranks in (1, 2, 3)] == [None, None, None]


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_sizes_are_whole_elements(dtype: str) -> None:
    size = ITEM_BYTES[dtype]
    assert workload("broadcast", sizes=str(size), dtype=dtype).points() == (MessagePoint(size, dtype),)
    if size > 1:
        with pytest.raises(ValidationError, match=f"size {size + 1} is not a whole number of {dtype}"):
            workload("broadcast", sizes=[str(size), str(size + 1)], dtype=dtype)


@pytest.mark.parametrize(
    "settings",
    [{"iterations": "0"}, {"warmup": "-1"}, {"repeats": "0"}, {"size": "8"}, {"dtype": "half"}, {"dtype": [["int8"]]}],
)
def test_what_no_sweep_takes(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        workload("send_recv", **settings)


def test_a_training_s_point_is_all_parameters() -> None:
    """By hand: 33 x 8 + 9 of a perceptron; 10 x 8, 73 x 8 and 8 x 8 + 1 of convolutions."""
    for model, parameters in (("mlp", 273), ("cnn", 729)):
        work = workload("ddp_train", hidden="8", model=model)
        assert work.points() == (MessagePoint(4 * parameters, "float32"),)
        assert ("--model" in work.program()) is (model == "cnn")
