"""What a user is told about why a cell failed: what is known, each rank, the debug rerun."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("stacks")

Write = Callable[..., Path]
Latest = Callable[[], Path]
Run = Callable[..., pytest.RunResult]

CELL = "two-ob1-tcp-allreduce-crash"
GPU_CAUSE = "ucx-gpu-pointer-taken-for-host"
EXPECT = "expect:\n  - {where: {how: crash}, known: KNOWN}\n"
CRASHES = "expect:\n  - {where: {how: crash}, outcome: crash}\n"
OURS = """\
- id: ours
  title: the stand-in crashes
  match: {signature: SIGSEGV@libuct.so!*}
  cause: it was told to
  fix: {env: {BEHAVE: good}}
  links: [https://example.org/4711]
"""
WHEN = "  when: {rack: r7}\n  cause"


def test_what_is_known_and_what_became_of_each_rank(
    run_pytest: Run, matrix: Write, latest: Latest, pytester: pytest.Pytester, mode: tuple[str, ...]
) -> None:
    pytester.path.joinpath("ours.yaml").write_text(OURS + OURS.replace("ours", "maybe").replace("  cause", WHEN))
    matrix(["crash"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-knowledge", "ours.yaml", *mode)
    assert done.ret == 1
    known = "known: the stand-in crashes [[]ours]: it was told to"
    done.stdout.fnmatch_lines(["*possible: the stand-in crashes [[]maybe]: it was told to", "*  proven if rack: r7"])
    done.stdout.fnmatch_lines(["*ranks: rank 0 crashed (SIGSEGV), rank 1 was stopped", f"*{known}*"])
    summary = (latest() / "summary.md").read_text()
    assert "- ranks: rank 0 crashed (SIGSEGV), rank 1 was stopped" in summary
    assert "- known, `ours`: " in summary
    assert "- possible, `maybe`: " in summary
    junit = (latest() / "junit.xml").read_text()
    assert 'name="known" value="ours"' in junit
    assert 'name="possible" value="maybe"' in junit
    assert 'name="ranks" value="rank 0 crashed (SIGSEGV), rank 1 was stopped"' in junit


def test_an_expectation_may_name_what_is_known(run_pytest: Run, matrix: Write, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("ours.yaml").write_text(OURS)
    matrix(["good", "crash"], EXPECT.replace("KNOWN", "ours"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-knowledge", "ours.yaml")
    assert done.ret == 0
    done.assert_outcomes(passed=1, xfailed=1)


def test_a_cause_in_gpu_memory_is_nowhere_for_a_cell_of_host_memory(
    run_pytest: Run, matrix: Write, latest: Latest
) -> None:
    matrix(["crash"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 1
    assert GPU_CAUSE not in done.stdout.str()
    texts = [path.read_text() for path in latest().rglob("*") if path.suffix in (".md", ".xml", ".html", ".jsonl")]
    assert len(texts) > 3
    assert not any(GPU_CAUSE in text for text in texts)
    matrix(["crash"], EXPECT.replace("KNOWN", GPU_CAUSE))
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"*crash (changed): expected {GPU_CAUSE}, got crash SIGSEGV@libuct.so!*"])


def test_another_failure_than_the_known_one_is_changed(run_pytest: Run, matrix: Write) -> None:
    matrix(["crash"], EXPECT.replace("KNOWN", "ucx-owner-thread"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 1
    key = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"
    told = f"crash (changed): expected ucx-owner-thread, got crash {key} on rank 0"
    told_at = next(place for place, line in enumerate(done.outlines) if line.endswith(told))
    text = "\n".join(done.outlines[told_at : done.outlines.index(next(filter(_again, done.outlines[told_at:])))])
    # In the reason, as the signature, and nowhere else; the line to quote is quoted once.
    assert text.count(key) == 2
    assert text.count("Signal: Segmentation fault") == 1


def _again(line: str) -> bool:
    return line.strip().startswith("again:")


def test_a_file_of_ones_own(
    run_pytest: Run, matrix: Write, latest: Latest, pytester: pytest.Pytester, mode: tuple[str, ...]
) -> None:
    pytester.path.joinpath("ours.yaml").write_text(OURS)
    matrix(["crash"], EXPECT.replace("KNOWN", "ours"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-knowledge", "ours.yaml", *mode)
    assert done.ret == 0
    assert "https://example.org/4711" in (latest() / "summary.md").read_text()


def test_a_bad_file_of_ones_own_ends_before_anything_starts(
    run_pytest: Run, matrix: Write, pytester: pytest.Pytester
) -> None:
    pytester.path.joinpath("ours.yaml").write_text(OURS.replace("cause:", "because:"))
    matrix(["crash"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-knowledge", "ours.yaml")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: ours.yaml:4: unknown key 'because' in ours (known: cause, *"])


def test_a_failed_cell_is_run_once_more_with_debug_output(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...]
) -> None:
    matrix(["good", "crash"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-debug-rerun", *mode)
    assert done.ret == 1
    told = f"debug rerun: failed in the same way, scenarios/{CELL}/debug/output.log"
    done.stdout.fnmatch_lines([f"*{told}"])
    assert told in (latest() / "summary.md").read_text()
    assert sorted(path.parent.parent.name for path in latest().glob("scenarios/*/debug/output.log")) == [CELL]
    own, debug = (json.loads((latest() / "scenarios" / CELL / part / "job.json").read_text()) for part in ("", "debug"))
    assert "btl_base_verbose" not in " ".join(own["job"]["command"]["argv"])
    assert "--mca btl_base_verbose 100" in " ".join(debug["job"]["command"]["argv"])


def test_what_is_expected_is_not_run_again(run_pytest: Run, matrix: Write, latest: Latest) -> None:
    matrix(["crash"], CRASHES)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-debug-rerun")
    assert done.ret == 0
    assert not list(latest().glob("scenarios/*/debug"))


@pytest.mark.parametrize(("value", "reruns"), [("true", True), ("off", False)])
def test_the_rerun_as_an_ini_key_and_a_variable(
    run_pytest: Run,
    matrix: Write,
    latest: Latest,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    reruns: bool,
) -> None:
    matrix(["crash"])
    pytester.makeini(f"[pytest]\nhetgpu_debug_rerun = {value}\n")
    run_pytest("--hetgpu-matrix", "demo.yaml")
    assert bool(list(latest().glob("scenarios/*/debug"))) is reruns
    monkeypatch.setenv("HETGPU_DEBUG_RERUN", "maybe")
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: HETGPU_DEBUG_RERUN: 'maybe' is none of 1, true, yes, on, 0, false, no, off"])
