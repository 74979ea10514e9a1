"""Which way of a quantity is better, and which numbers of a cell tell most."""

from __future__ import annotations

import pytest

from pytest_hetgpu.model.quantities import (
    HIGHER,
    LOWER,
    better,
    describe,
    digits,
    direction,
    headline,
    independent,
    no_direction,
    split_unit,
    stored_unit,
    telling,
)
from pytest_hetgpu.model.records import Measurement, MessagePoint

NOWHERE = MessagePoint(0, "none")
SMALL, LARGE = MessagePoint(8, "float32"), MessagePoint(1 << 20, "float32")


def one(metric: str, value: float = 1.0, unit: str = "", point: MessagePoint = NOWHERE, way: str = "") -> Measurement:
    return Measurement(metric, value, unit, point, 2, better=way)


@pytest.mark.parametrize(
    ("units", "way"),
    [
        (("s", "ms", "us", "\u00b5s", "ns", "min", "h", "seconds", "s/step", "us/op", "ms / iteration"), LOWER),
        (("GB/s", "1/s", "samples/s", "timesteps/s", "Mb/sec", "ns/day", "it/s", "Gbit/s", "img/sec"), HIGHER),
        (("GFLOPS", "TFLOP", "Hz", "MHz", "IOPS", "Gbps", "fps"), HIGHER),
        (("", "Ry", "%", "MiB", "K", "J/mol", "x", "points"), ""),
    ],
)
def test_the_unit_tells_what_is_better(units: tuple[str, ...], way: str) -> None:
    assert {unit: direction(unit) for unit in units} == dict.fromkeys(units, way)


def test_what_the_user_states_comes_first() -> None:
    assert better(one("wait", unit="s", way=HIGHER)) == HIGHER
    assert better(one("wait", unit="s")) == LOWER
    assert "set `better: lower` or `better: higher`" in no_direction("energy", "Ry")
    assert no_direction("score", "").startswith("score has no unit")


@pytest.mark.parametrize("unit", ["", "Ry", "GB/s", "a (b)"])
@pytest.mark.parametrize("way", ["", LOWER, HIGHER])
def test_a_stored_unit_keeps_the_direction(unit: str, way: str) -> None:
    assert split_unit(stored_unit(one("x", unit=unit, way=way))) == (unit, way)


def test_of_one_time_one_number_is_independent() -> None:
    found = [one(metric, point=point) for point in (SMALL, LARGE) for metric in ("busbw", "algbw", "latency", "loss")]
    kept = [(item.metric, item.point) for item in independent(found)]
    assert kept == [("latency", SMALL), ("loss", SMALL), ("busbw", LARGE), ("loss", LARGE)]
    stream = [one("bandwidth", point=LARGE), one("message_rate", point=LARGE)]
    assert independent(stream) == tuple(stream)


def test_one_number_per_metric_and_a_headline() -> None:
    found = [
        one("busbw", 0.5, "GB/s", SMALL),
        one("algbw", 0.5, "GB/s", SMALL),
        one("latency", 3.0, "us", SMALL),
        one("busbw", 2.0, "GB/s", LARGE),
        one("latency", 9.0, "us", LARGE),
        one("loss", 0.1),
    ]
    assert [(item.metric, item.value) for item in telling(found)] == [("busbw", 2.0), ("latency", 3.0), ("loss", 0.1)]
    assert [item.metric for item in headline(found)] == ["busbw", "latency"]
    assert [item.metric for item in headline([one("loop", 1.0, "s"), one("wall", 2.0, "s")])] == ["loop"]
    assert headline([]) == telling([]) == ()


def test_numbers_for_people() -> None:
    assert describe(one("busbw", 1.319, "GB/s", LARGE)) == "busbw 1.32 GB/s at 1M float32"
    assert describe(one("busbw", 1.319, "GB/s", LARGE), typed=False) == "busbw 1.32 GB/s at 1M"
    assert describe(one("loop", 3.811, "s")) == "loop 3.81 s"
    assert describe(one("score", 3.0)) == "score 3.00"
    assert describe(one("x", 1.0, "s", MessagePoint(8, "int8", "in"))) == "x 1.00 s at 8 int8 in place"
    assert [digits(value) for value in (0.03123, 123.4, 98765.4, 2e9, 0.0)] == [
        "0.0312",
        "123",
        "98765",
        "2.00e+09",
        "0.00",
    ]
