"""What goes upstream reproduces the failure where this project never was."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real.nodes_here import docker

pytestmark = [pytest.mark.real, pytest.mark.beside]

Nodes = Callable[..., pytest.RunResult]
GUARDED = """\
axes:
  placement: {pair: [one, one]}
  transport: {ucx: {tls: [tcp, self]}, ob1: {}}
  workload: {guarded_send: {sizes: 64, timeout: 30}, send_recv: {sizes: 64}}
"""
LOCAL = """\
name: here
hardware: {cpu: {}}
axes:
  placement: {two: [cpu, cpu]}
  transport: {ob1: {}}
  workload: {dies: {kind: fault, fault: segfault}}
"""


def hetgpu(*arguments: object) -> str:
    done = subprocess.run(
        (sys.executable, "-m", "pytest_hetgpu.cli", *map(str, arguments)), capture_output=True, check=True
    )
    return done.stdout.decode()


def reproduced(run: Path, wanted: str, place: Path) -> dict[str, Any]:
    """What `hetgpu explain` says of what the reproducer of a bundle printed, run without anything of ours on PATH."""
    archive = place / "bundle.tar.gz"
    hetgpu("bundle", run, wanted, "-o", archive)
    with tarfile.open(archive) as opened:
        opened.extractall(place, filter="data")
    (folder,) = (path for path in place.iterdir() if path.is_dir())
    done = subprocess.run(
        ("./reproduce.sh",),
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    log = place / "printed.log"
    log.write_bytes(done.stdout)
    assert b"ended with exit code" in done.stdout, done.stdout
    found: dict[str, Any] = json.loads(hetgpu("explain", "--json", log))
    return found


def test_a_crash_between_containers(nodes: Nodes, pytester: pytest.Pytester, tmp_path: Path) -> None:
    assert nodes(GUARDED).ret == 1
    run = (pytester.path / "reports" / "latest").resolve()
    text = next((run / "issues").glob("SIGSEGV-libuct*.md")).read_text()
    assert text.startswith("<!-- Title: SIGSEGV in uct_tcp_ep_am_short (libuct.so.0) under MPI_Send, UCX 1.")
    assert "- workload: `guarded_send` fails, `send_recv` works" in text
    assert reproduced(run, "pair-ucx-guarded_send", tmp_path)["key"] == "SIGSEGV@libuct.so!uct_tcp_ep_am_short"
    assert "hetgpu-nodes-pair" not in docker("ps", "-a", "--format", "{{.Names}}")
    assert "hetgpu-nodes-pair" not in docker("network", "ls", "--format", "{{.Name}}")


def test_a_crash_on_this_machine(
    pytester: pytest.Pytester, stacks_here: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "stacks"
    home.mkdir()
    (home / "openmpi-5").symlink_to(stacks_here("openmpi-5"))
    monkeypatch.setenv("HETGPU_STACKS", str(home))
    pytester.path.joinpath("here.yaml").write_text(LOCAL)
    assert pytester.runpytest_subprocess("--hetgpu-matrix", "here.yaml", timeout=120).ret == 1
    run = (pytester.path / "reports" / "latest").resolve()
    (text,) = (run / "issues").iterdir()
    place = tmp_path / "there"
    place.mkdir()
    found = reproduced(run, "two-ob1-dies", place)
    assert text.read_text().count(found["key"]) > 0
