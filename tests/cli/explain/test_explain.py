"""The explanation of a log without exit code or job."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.analysis.explain import Explanation, explain
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.model.verdict import Kind

UCX = "[1795183975.242676] [n1:5148 :0]          x.c:15 UCX  "


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "output.log"


def read(log: Path, *lines: str) -> Explanation:
    log.write_text("\n".join(lines) + "\n")
    return explain(log, known_failures())


def test_a_run_without_a_word_of_failure_has_passed(log: Path) -> None:
    found = read(log, "$ mpirun -np 2 ./a.out", "done")
    assert (found.outcome, found.signature, found.lines) == (Kind.PASSED, None, 2)


@pytest.mark.parametrize("text", ["", "# A readme", "Collecting torch\nSuccessfully installed torch"])
def test_what_holds_no_run_is_unknown(log: Path, text: str) -> None:
    assert read(log, text).outcome is Kind.UNKNOWN


def test_what_a_library_logs_is_no_failure_when_the_program_goes_on(log: Path) -> None:
    logged = UCX + "ERROR something failed"
    assert read(log, "rank 0: starting", logged, "step 1 residual 2.0").outcome is Kind.UNKNOWN
    assert read(log, "rank 0: starting", logged, "step 1 residual 2.0", "rank 0: done").outcome is Kind.PASSED


def test_what_a_library_logs_last_is_the_failure(log: Path) -> None:
    found = read(log, "step 1 residual 2.0", UCX + "ERROR tcp_ep 0x55 send(29) failed: Input/output error", "")
    assert found.outcome is Kind.ERROR
    assert found.signature
    assert found.signature.line == 2


def test_what_proves_a_failure_outweighs_what_a_library_logged_before(log: Path) -> None:
    found = read(
        log,
        UCX + "ERROR something failed",
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in main',
        "ValueError: no",
    )
    assert found.signature
    assert found.signature.key == "ValueError@train.py!main"
    assert [other.key for other in found.others] == ["something-failed@ucx"]


def test_what_is_known_comes_with_it_and_noise_is_named(log: Path) -> None:
    found = read(
        log,
        "libibverbs: Warning: couldn't load driver 'librxe.so': librxe.so: cannot open shared object file",
        "[n1:00741] pml_ucx.c:207 mca_pml_ucx_open: UCX version 1.18.0",
        "[n1:00741] PML ucx cannot be selected",
    )
    assert [known.id for known in found.known] == ["openmpi-ucx-devices"]
    assert [(noise.entry.id, noise.line) for noise in found.noise] == [("verbs-drivers-missing", 1)]
    assert found.versions == {"ucx": "1.18.0"}


def test_ranks_are_told_apart_by_what_the_launcher_puts_before(log: Path) -> None:
    found = read(
        log,
        "0: Traceback (most recent call last):",
        "1: Traceback (most recent call last):",
        '0:   File "a.py", line 3, in one',
        '1:   File "a.py", line 9, in two',
        "1: KeyError: 'b'",
        "0: ValueError: a",
    )
    assert found.signature
    assert (found.signature.key, found.signature.ranks) == ("KeyError@a.py!two", (1,))
    assert [(other.key, other.ranks) for other in found.others] == [("ValueError@a.py!one", (0,))]
