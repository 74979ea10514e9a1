"""Cures of failures, and the smallest job that fails; without xdist, with -n0 and with -n2."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.reporting.upstream.bundle import write_bundle
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import Shrunk, Tried

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Latest = Callable[[], Path]
MATRIX = """\
name: demo
hardware:
  cpu: {platform: cpu}
axes:
  placement: {two: [cpu, cpu]}
  transport: {ob1-tcp: {family: ob1, mca: {btl_tcp_if_include: lo}}}
  workload: {allreduce: {sizes: [8, 1K], env: {ANY: thing}}}
  how: {good: {env: {BEHAVE: good}}, crash: {env: {BEHAVE: crash}}}
expect:
"""
EXPECT = "- {where: {how: crash}, outcome: crash, reason: r, remedy: {env: {BEHAVE: HOW}}}\n"
KEY = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"


def write(*hows: str) -> None:
    Path("demo.yaml").write_text(MATRIX + "".join(EXPECT.replace("HOW", how) for how in hows))


def trials(run: Path) -> dict[str, Tried]:
    return {one.settings: one for one in read_run(run).trials}


def facts(run: Path) -> dict[str, Any]:
    (several,) = json.loads((run / "boundary.json").read_text())["matrices"].values()
    found: dict[str, Any] = several[-1]["facts"]
    return found


def test_one_remedy_cures(run_pytest: Run, latest: Latest, mode: tuple[str, ...]) -> None:
    write("good", "network")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-remedies", *mode)
    assert done.ret == 0
    run = latest()
    found = trials(run)
    assert (found["BEHAVE=good"].result, len(found["BEHAVE=good"].runs)) == ("cured", 3)
    assert (found["BEHAVE=network"].result, len(found["BEHAVE=network"].runs)) == ("changes the failure", 1)
    assert found["btl_tcp_disable_family=6"].result == "no effect"
    assert found["btl_tcp_disable_family=6"].source.startswith("https://")
    assert "btl_tcp_if_include=lo" not in found
    cure = facts(run)["cure"]
    assert cure.startswith(f"BEHAVE=good (3 of 3); 1 of {len(found)} tried; BEHAVE=network changes the failure (")
    done.stdout.fnmatch_lines([f"remedy BEHAVE=good for {KEY}: cured", "  cure        BEHAVE=good (3 of 3); *"])
    for part in ("summary.md", "index.html"):
        assert "BEHAVE=good (3 of 3)" in (run / part).read_text().replace("\\", "")
    log = run / found["BEHAVE=network"].runs[0].log
    assert "No route to host" in log.read_text()


def test_no_remedy_cures(run_pytest: Run, latest: Latest) -> None:
    write("network", "wrong")
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-remedies")
    assert facts(latest())["cure"].startswith(f"none of {len(trials(latest()))} tried; BEHAVE=network changes ")


def test_a_pass_now_and_then_is_no_cure(run_pytest: Run, latest: Latest) -> None:
    write("good-then-crash")
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-remedies")
    one = trials(latest())["BEHAVE=good-then-crash"]
    assert (one.result, one.why) == ("changes the failure", "it passed 1 of 2 times")


def test_the_smallest_job(run_pytest: Run, latest: Latest, mode: tuple[str, ...]) -> None:
    write("good")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-minimise", *mode)
    assert done.ret == 0
    (one,) = read_run(latest()).smallest
    assert isinstance(one, Shrunk)
    assert (one.key, one.ranks, one.points, one.settings, one.same, one.runs) == (
        KEY,
        2,
        ("size 8",),
        ("BEHAVE=crash",),
        3,
        3,
    )
    assert one.tries <= 16
    text = f"2 ranks, size 8, 1 of {one.settings_before} settings: BEHAVE=crash (3 of 3)"
    assert facts(latest())["smallest"] == text
    done.stdout.fnmatch_lines([f"smallest job for {KEY}: {text}", f"  smallest    {text}"])
    assert "ANY=thing" not in " ".join(one.argv)
    assert "Segmentation fault" in (latest() / one.log).read_text()


def test_a_resumed_run_does_not_try_again(run_pytest: Run, latest: Latest) -> None:
    write("good")
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-remedies", "--hetgpu-minimise")
    before = read_run(latest())
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-remedies", "--hetgpu-minimise", "--hetgpu-resume")
    after = read_run(latest())
    assert (after.trials, after.smallest) == (before.trials, before.smallest)
    assert before.trials
    assert before.smallest


def test_nothing_is_tried_if_nothing_failed_or_the_time_is_spent(run_pytest: Run, latest: Latest) -> None:
    write("good")
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-remedies", "--hetgpu-minimise", "-k", "good")
    assert not read_run(latest()).trials
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-remedies", "--hetgpu-minimise", "--hetgpu-budget", "0.01")
    assert not read_run(latest()).trials
    assert not read_run(latest()).smallest


def test_the_issue_and_its_script_have_the_smallest_job(run_pytest: Run, latest: Latest) -> None:
    write("good")
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-remedies", "--hetgpu-minimise")
    run = latest()
    (issue,) = (run / "issues").iterdir()
    text = issue.read_text().replace("\\", "")
    assert "Cure: BEHAVE=good (3 of 3); 1 of " in text
    assert "Smallest job: 2 ranks, size 8, 1 of " in text
    assert "ANY=thing" not in text
    write_bundle(run, KEY, Path("b.tar.gz"))
    with tarfile.open("b.tar.gz") as archive:
        names = {Path(one).name: one for one in archive.getnames()}
        script, issue_text = (archive.extractfile(names[name]) for name in ("reproduce.sh", "issue.md"))
        assert script
        assert issue_text
        command = script.read().decode()
        assert "Smallest job" in issue_text.read().decode()
    assert "BEHAVE=crash" in command
    assert "ANY=thing" not in command
    assert "--sizes 8 " in command.replace("'", "")
