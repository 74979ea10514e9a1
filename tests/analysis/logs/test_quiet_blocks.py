"""Blocks without a text of interest: what is skipped, and that no text is missed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.analysis.logs.parse import scan_log
from pytest_hetgpu.analysis.logs.quiet_blocks import QuietBlocks
from pytest_hetgpu.analysis.logs.text_search import find_texts
from pytest_hetgpu.config.known_failures.load import known_failures

QUIET = "step 12 of 90, loss 0.35, all is well\n" * 30_000
HARMLESS = "Read -1, expected 64, errno = 1\n"


@given(
    st.lists(st.sampled_from([b"quiet\n", b"a word\n", b"longer, and still quiet\n", b"\x1b[1mcolour\n"]), max_size=40)
)
def test_parts_are_the_blocks_with_a_word(blocks: list[bytes]) -> None:
    quiet, at = QuietBlocks([b"word"]), 0
    for block in blocks:
        quiet.is_quiet(block, at)
        at += len(block)
    log = b"".join(blocks)
    parts = quiet.parts(len(log))
    kept = b"".join(log[start:end] for start, end in parts)
    assert kept.count(b"word") == log.count(b"word")
    assert kept.count(b"\x1b") == log.count(b"\x1b")
    assert all(start < end for start, end in parts)
    assert all(before[1] < after[0] for before, after in pairwise(parts))


def test_the_search_ends_if_most_blocks_hold_a_word() -> None:
    quiet = QuietBlocks([b"word"])
    for at in range(100):
        assert not quiet.is_quiet(b"a word\n", 7 * at)
    assert not quiet.is_quiet(b"quiet\n", 700)
    assert quiet.parts(706) == [(0, 706)]


def test_a_text_in_a_large_quiet_log_keeps_its_line(tmp_path: Path) -> None:
    log, knowledge = tmp_path / "log", known_failures()
    log.write_text(QUIET * 2 + HARMLESS + QUIET * 2 + HARMLESS + QUIET)
    parts = scan_log(log, texts=knowledge.texts).parts
    assert parts is not None
    assert sum(end - start for start, end in parts) < 0.6 * log.stat().st_size
    assert find_texts(log, knowledge.texts, parts) == find_texts(log, knowledge.texts) != {}
    (noise,) = explain(log, knowledge).noise
    assert noise.line == 60_001


def test_the_parts_of_a_small_log_are_not_known(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(HARMLESS)
    assert scan_log(log).parts is None
