"""Steps in nightly series: how soon, how exactly, and how rarely by chance. The seeds are fixed.

`benchmarks/change_points.py` measures the rates on many series. The floors here are two standard errors looser, as a
few hundred series scatter by so much.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_hetgpu.analysis.nights import course
from pytest_hetgpu.analysis.nights.change_points import MissingExtra, available, find_changes
from pytest_hetgpu.analysis.nights.prefilter import LEAST, pack, suspects
from pytest_hetgpu.analysis.nights.records import CourseShape, LevelPair, NightSeries, SeriesChange
from pytest_hetgpu.errors import HetgpuError

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.nights.prefilter import Floats

np = pytest.importorskip("numpy")
pytest.importorskip("ruptures")

NOISE = 0.03
QUIET = 35
NOISES = ("normal", "t3")


def draw(seed: int, series: int, nights: int, noise: str = "normal") -> Floats:
    """Return logarithms with a standard deviation of NOISE."""
    rng = np.random.default_rng(seed)
    size = (series, nights)
    found: Floats = rng.standard_normal(size) if noise == "normal" else rng.standard_t(3, size) / 3**0.5
    return NOISE * found


def stepped(seed: int, nights: int, size: float, series: int = 300, noise: str = "normal") -> Floats:
    """Return series with a step of `size` x NOISE after the quiet nights, half of them downwards."""
    signs = np.where(np.arange(series) % 2, -1, 1)[:, None]
    found: Floats = draw(seed, series, nights, noise) + NOISE * size * signs * (np.arange(nights) >= QUIET)
    return found


def courses(logs: Floats) -> list[SeriesChange]:
    return find_changes([NightSeries(row) for row in np.exp(logs).tolist()])


def one(values: Sequence[float | None], **labels: Sequence[str | None]) -> SeriesChange:
    (found,) = find_changes([NightSeries(values, labels)])
    return found


def named(logs: Floats) -> Counter[CourseShape]:
    return Counter(found.shape for found in courses(logs))


def found_by(logs: Floats, looks: Sequence[int]) -> float:
    """Return the share of series in which a look at one of these nights finds a step."""
    rows = np.arange(len(logs))
    for night in looks:
        rows = rows[[not found.steps for found in courses(logs[rows, :night])]]
    return 1 - len(rows) / len(logs)


def alarms(logs: Floats) -> int:
    """Return how many series are anything but steady in a look at any night."""
    rows = np.arange(len(logs))
    for night in range(LEAST, logs.shape[1] + 1):
        flags = suspects(logs[rows, :night])
        for row, found in zip(rows[flags], courses(logs[rows[flags], :night]), strict=True):
            if found.shape is not CourseShape.STEADY:
                rows = rows[rows != row]
    return len(logs) - len(rows)


@pytest.mark.parametrize("noise", NOISES)
def test_a_large_step_is_found_within_five_nights(noise: str) -> None:
    assert found_by(stepped(3, QUIET + 5, 3.0, 500, noise), range(QUIET + 1, QUIET + 6)) >= 0.87


@pytest.mark.parametrize("noise", NOISES)
def test_a_small_step_is_found_within_25_nights(noise: str) -> None:
    assert found_by(stepped(3, QUIET + 25, 1.5, 400, noise), range(QUIET + 15, QUIET + 26)) >= 0.87


@pytest.mark.parametrize("noise", NOISES)
def test_a_step_is_dated_within_one_night(noise: str) -> None:
    found = courses(stepped(4, 60, 3.0, noise=noise))
    near = [any(abs(step.night - QUIET) <= 1 for step in series.steps) for series in found if series.steps]
    assert len(near) >= 0.99 * len(found)
    assert sum(near) >= 0.95 * len(near)


def test_noise_raises_one_alarm_in_a_thousand_with_a_look_each_night() -> None:
    assert alarms(draw(5, 3000, 60)) <= 3 + 2 * 3**0.5


def test_heavy_tails_raise_one_alarm_in_a_thousand_with_one_look() -> None:
    assert 3000 - named(draw(5, 3000, 60, "t3"))[CourseShape.STEADY] <= 3 + 2 * 3**0.5


def test_a_drift_is_no_step() -> None:
    for size, share in ((4, 0.8), (6, 0.9), (10, 0.95)):
        found = named(draw(6, 100, 60) + size * NOISE * np.linspace(0, 1, 60))
        assert found[CourseShape.DRIFT] >= share * 100


def test_a_drift_is_measured() -> None:
    found = one((100 * np.exp(draw(7, 1, 100)[0] + np.linspace(0, 0.3, 100))).tolist())
    assert found.shape is CourseShape.DRIFT
    assert found.drift == pytest.approx(np.exp(0.3), rel=0.05)
    assert found.noise == pytest.approx(NOISE, rel=0.25)
    assert found.name.startswith("drift, +3")


def test_two_levels_are_no_steps() -> None:
    for apart, share, floor in ((5, 0.5, 0.8), (6, 0.5, 0.95), (6, 0.25, 0.8), (8, 0.25, 0.9)):
        high = np.random.default_rng(8).random((100, 60)) < share
        found = named(draw(8, 100, 60) + apart * NOISE * high)
        assert found[CourseShape.TWO_LEVELS] >= floor * 100
        assert found[CourseShape.STEPS] <= 0.02 * 100


def test_a_step_is_neither_drift_nor_two_levels() -> None:
    for size, share in ((1.5, 0.06), (2.0, 0.03), (3.0, 0.01), (6.0, 0.0)):
        found = named(stepped(9, 60, size, 200))
        assert found[CourseShape.DRIFT] + found[CourseShape.TWO_LEVELS] <= share * 200


def test_a_level_that_follows_the_host_is_named_so() -> None:
    hosts = np.random.default_rng(10).choice(["ci1", "ci2", "ci3"], 60).tolist()
    logs = draw(10, 1, 60)[0] + 3 * NOISE * np.array([host == "ci2" for host in hosts])
    found = one(np.exp(logs).tolist(), day=["weekday"] * 60, host=hosts)
    assert found.name == "two levels, by host: ci1, ci3, ci2"
    assert isinstance(found.levels, LevelPair)
    assert (found.levels.at_low, found.levels.at_high) == (("ci1", "ci3"), ("ci2",))
    assert found.levels.high / found.levels.low == pytest.approx(np.exp(3 * NOISE), rel=0.03)


def test_nights_of_an_unknown_host_are_no_matter() -> None:
    hosts: list[str | None] = ["ci1", "ci2"] * 30
    logs = draw(11, 1, 60)[0] + 4 * NOISE * np.array([host == "ci2" for host in hosts])
    hosts[7] = hosts[20] = None
    assert one(np.exp(logs).tolist(), host=hosts).name == "two levels, by host: ci1, ci2"


def test_hosts_that_alternate_do_not_hide_a_step() -> None:
    found = one(np.exp(stepped(12, 60, 4.0, 1)[0]).tolist(), host=["ci1", "ci2"] * 30)
    assert [step.night for step in found.steps] == [QUIET]


def test_a_new_host_with_a_new_level_is_a_step() -> None:
    found = one(np.exp(stepped(12, 60, 4.0, 1)[0]).tolist(), host=["ci1"] * QUIET + ["ci2"] * 25)
    assert found.shape is CourseShape.STEPS


def test_hosts_of_one_level_are_no_matter() -> None:
    assert one(np.exp(draw(13, 1, 60)[0]).tolist(), host=["ci1", "ci2"] * 30).shape is CourseShape.STEADY


def test_up_and_back_down() -> None:
    logs = draw(14, 1, 90)[0]
    logs[30:60] += 4 * NOISE
    found = one((5 * np.exp(logs)).tolist())
    up, down = found.steps
    assert (up.night, down.night) == (30, 60)
    assert up.ratio == pytest.approx(np.exp(4 * NOISE), rel=0.02)
    assert down.before == up.after
    assert found.level == down.after == pytest.approx(5, rel=0.02)
    assert found.noise == pytest.approx(NOISE, rel=0.25)
    assert max(up.p, down.p) < 1e-9


def test_a_night_is_counted_with_the_missing_ones() -> None:
    values: list[float | None] = np.exp(stepped(15, 60, 5.0, 1)[0]).tolist()
    for night in (0, 3, 20, 36, 50):
        values[night] = None
    found = one(values)
    assert [step.night for step in found.steps] == [QUIET]
    assert found.known == 55


def test_outliers_are_no_step() -> None:
    logs = draw(16, 1, 60)[0]
    logs[[20, 57, 59]] += 1.0
    found = one(np.exp(logs).tolist())
    assert found.shape is CourseShape.STEADY
    assert found.noise == pytest.approx(NOISE, rel=0.35)


def test_an_outlier_does_not_hide_a_step() -> None:
    logs = stepped(17, 50, 4.0, 1)[0]
    logs[10] += 2.0
    assert [step.night for step in one(np.exp(logs).tolist()).steps] == [QUIET]


def test_values_without_noise() -> None:
    assert one([2.5] * 40).shape is CourseShape.STEADY
    assert [step.night for step in one([2.5] * 30 + [2.6] * 10).steps] == [30]
    assert one([2.5, 2.5001] * 30).shape is CourseShape.STEADY


def test_too_few() -> None:
    found = find_changes([NightSeries([1.0] * (LEAST - 1) + [None] * 50), NightSeries([]), NightSeries([None])])
    assert [(series.shape, series.known, series.level) for series in found] == [
        (CourseShape.TOO_FEW, LEAST - 1, 1.0),
        (CourseShape.TOO_FEW, 0, None),
        (CourseShape.TOO_FEW, 0, None),
    ]
    assert find_changes([]) == []
    assert found[0].name == "too few"


def test_series_of_several_lengths_are_searched_alone() -> None:
    logs = stepped(18, 50, 4.0, 20)
    series = [NightSeries(row[: 40 + place].tolist()) for place, row in enumerate(np.exp(logs)[:10])]
    assert find_changes(series) == [find_changes([single])[0] for single in series]


def test_few_quiet_nights_need_a_larger_step() -> None:
    early = draw(22, 300, 25) + 5 * NOISE * (np.arange(25) >= 18)
    assert sum(bool(found.steps) for found in courses(early)) >= 0.9 * 300


def test_the_scan_loses_no_clear_step() -> None:
    """Compare with a search of every series: each step of p below 1e-6 is in a series that the scan passes on."""
    clear = 0
    for size in (1.5, 2.0, 3.0, 6.0):
        logs = stepped(19, 60, size, 150)
        for row, flag in zip(logs, suspects(logs), strict=True):
            found = course.cuts(row)
            if min(found.chances, default=1) < 1e-6:
                clear += 1
                assert flag
    assert clear > 450


def test_the_scan_is_fast() -> None:
    for nights, limit in ((60, 0.5), (365, 5)):
        logs = draw(20, 3000, nights)
        logs[::7, 5] = np.nan
        suspects(logs[:10])
        started = time.process_time()
        suspects(logs)
        assert time.process_time() - started < limit


def test_the_search_is_fast_if_nearly_all_are_stable() -> None:
    series = [NightSeries(row) for row in np.exp(draw(20, 3000, 365)).tolist()]
    started = time.process_time()
    find_changes(series)
    assert time.process_time() - started < 5


def test_known_nights_move_left() -> None:
    nan = np.nan
    packed, counts = pack(np.array([[nan, 1, nan, 2], [3, 4, 5, 6]]))
    assert counts.tolist() == [2, 4]
    assert packed[0, :2].tolist() == [1, 2]
    assert packed[1].tolist() == [3, 4, 5, 6]


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_values_are_positive(value: float) -> None:
    with pytest.raises(ValueError, match="series 1, night 2: .* is not a positive number"):
        find_changes([NightSeries([1.0]), NightSeries([1.0, 1.0, value])])


def test_labels_are_one_per_night() -> None:
    with pytest.raises(ValueError, match="series 0: 2 values, but 1 labels 'host'"):
        one([1.0, 1.0], host=["ci1"])


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not available()
    with pytest.raises(MissingExtra, match=r"pip install 'pytest-hetgpu\[history\]'") as raised:
        find_changes([])
    assert isinstance(raised.value, HetgpuError)


def test_the_extra_is_imported_when_it_is_used() -> None:
    program = "import sys, pytest_hetgpu.analysis.nights.change_points; print({'numpy', 'ruptures'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
