"""A run in the conditions that machines have: its umask, locale, HOME, TMPDIR, limits and inodes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.hosts_here import cells, lacks

pytestmark = [pytest.mark.real, pytest.mark.beside]

Stacks = Callable[[str], Path]
Need = Callable[[str, str], None]

MATRIX = """\
name: conditions
hardware: {cpu: {env: {OWN: "é 'x'"}}}
axes:
  placement: {two: [cpu, cpu]}
  transport: {auto: {}}
  workload: {allreduce: {sizes: 8, iterations: 3, warmup: 1, repeats: 1}}
"""
CELL = "two-auto-allreduce"
# Each is what a shell does before pytest starts.
HELD = {
    "umask": "umask 077",
    "open files": "ulimit -n 256",
    "locale": "export LC_ALL=C LANG=C",
    "no locale": "unset LC_ALL LANG PYTHONUTF8",
    "home": "export HOME=/no/such/home",
    "no home": "unset HOME",
    "space in TMPDIR": 'mkdir "$PWD/a b" && export TMPDIR="$PWD/a b"',
    "time zone": "export TZ=Pacific/Kiritimati",
    "core files": "ulimit -c 0",
    "stack": "ulimit -s unlimited",
}


@pytest.fixture
def run(
    tmp_path: Path, stacks_here: Stacks, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the matrix after lines of a shell."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/openmpi-5").symlink_to(stacks_here("openmpi-5").resolve())
    (tmp_path / "m.yaml").write_text(MATRIX, encoding="utf-8")
    for name in ("stacks", "leases", "ledgers"):
        monkeypatch.setenv(f"HETGPU_{name.upper()}", str(tmp_path / name))

    def start(lines: str, *before: str) -> subprocess.CompletedProcess[str]:
        words = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hetgpu-matrix", "m.yaml")
        script = f"{lines} && exec {shlex.join(words)}"
        return subprocess.run(
            (*before, "sh", "-c", script), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240
        )

    return start


@pytest.mark.parametrize("condition", HELD)
def test_a_condition_changes_no_verdict(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, condition: str
) -> None:
    done = run(HELD[condition])
    assert done.returncode == 0, done.stdout + done.stderr
    assert cells(tmp_path / "reports")[CELL]["verdict"] == "ok"


def test_a_temporary_folder_without_inodes_is_named(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, lacking: Need
) -> None:
    if why := lacks():
        lacking("netns", why)
    (tmp_path / "few").mkdir()
    mount = f"mount -t tmpfs -o nr_inodes=4 few {tmp_path / 'few'} && export TMPDIR={tmp_path / 'few'}"
    done = run(mount, "unshare", "-m")
    assert done.returncode == 1, done.stdout + done.stderr
    cell = cells(tmp_path / "reports")[CELL]
    assert (cell["verdict"], cell["outcome"]) == ("new", "launch_failure")
    assert cell["signature"] == "no-space@session-dir"
    assert os.listdir(tmp_path / "few") == []  # noqa: PTH208 - the mount has gone with its namespace
