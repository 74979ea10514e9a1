"""Explanations of large logs, of which most repeated lines are not read: they are those of the small log."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.repeated import repeated
from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.analysis.logs import scan
from pytest_hetgpu.analysis.logs.scan import LEAST_SIZE
from pytest_hetgpu.config.known_failures.load import known_failures

LOGS = Path(__file__).parents[1] / "data" / "logs"
NAMES = (
    "debian-assertion",
    "debian-bus-error",
    "openmpi4-no-host",
    "openmpi4-ob1-mpi-abort",
    "openmpi4-truncate-fatal",
    "openmpi4-ucx-guarded",
    "openmpi5-interleaved",
    "openmpi5-no-library",
    "openmpi5-ob1-abort",
    "openmpi5-ucx-guarded",
)
SIZE = 6_000_000


def answer(log: Path) -> tuple[str, str]:
    """Return the outcome of a log and the key of its failure."""
    found = explain(log, known_failures())
    assert not found.failed
    return found.outcome.value, found.signature.key if found.signature else ""


def test_logs_are_large_enough() -> None:
    assert SIZE > LEAST_SIZE


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_repeated_log_has_the_answer_of_one(tmp_path: Path, name: str) -> None:
    log = LOGS / f"{name}.log"
    assert answer(repeated(log, tmp_path / "large.log", SIZE)) == answer(log)


@pytest.mark.nightly(reason="reads several hundred MB")
def test_every_repeated_log_has_the_answer_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: Callable[[str, str], None]
) -> None:
    given = os.environ.get("HETGPU_CORPUS", "")
    if not given:
        lacking("corpus", "no corpus of labelled logs: set HETGPU_CORPUS")
    different, logs = [], sorted((Path(given) / "cases").iterdir())
    for log in logs:
        large = repeated(log, tmp_path / "large.log", SIZE)
        found = answer(large)
        if found == answer(log):
            continue
        # Some failures depend on their number: then the whole repeated log has another answer, too.
        with monkeypatch.context() as patch:
            patch.setattr(scan, "LEAST_SIZE", 2 * SIZE)
            if found != answer(large):
                different.append((log.name, found))
    # Two lines that repeat alone have no order: which of them came first is a matter of counts.
    assert len(different) <= len(logs) // 100, different
