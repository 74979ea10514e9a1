"""No value reaches a shell, also not the one that ssh starts on another node for a launcher's daemon."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_hetgpu.extensions.launchers.base import LaunchRequest
from pytest_hetgpu.extensions.launchers.mpirun import Mpirun
from pytest_hetgpu.extensions.stacks.base import family_of
from pytest_hetgpu.model.job import RankContext, Stack
from tests.conftest import Stacks

MATRIX = """\
name: m
hardware: {{cpu: {{fabric: {{netdev: {netdev}}}, mca: {{a_b: {mca}}}}}}}
axes:
  placement: {{p: [cpu, cpu]}}
  transport: {{t: {{family: ob1, netdev: {own}}}}}
  workload: {{barrier: {{}}}}
"""
GOOD = {"netdev": "eth0", "mca": "^sm,tcp;x & 'y' (z) *", "own": "eth0.100"}
MatrixErrors = Callable[..., list[str]]


def matrix(values: Mapping[str, str]) -> str:
    return MATRIX.format(**{name: json.dumps(value) for name, value in values.items()})


def test_what_launchers_are_used_to_is_taken(matrix_errors: MatrixErrors) -> None:
    assert matrix_errors(matrix(GOOD)) == []


@pytest.mark.parametrize("hostile", ["$(id)", "`id`", 'a"b', "a\\b", "${HOME}x", "a\nb", "a\x07"])
@pytest.mark.parametrize("where", GOOD)
def test_what_a_shell_would_read_is_refused(matrix_errors: MatrixErrors, where: str, hostile: str) -> None:
    (told,) = matrix_errors(matrix({**GOOD, where: hostile.replace("${", "$${")}))
    assert told.startswith(("m.yaml:2: ", "m.yaml:5: "))
    assert " must " in told or "is no interface" in told


@pytest.mark.parametrize("hostile", ["-iface", "eth0;id", "a|b", "a&b", "<a", "a b", "'a'", "a*"])
@pytest.mark.parametrize("where", ["netdev", "own"])
def test_an_interface_is_a_name(matrix_errors: MatrixErrors, where: str, hostile: str) -> None:
    assert len(matrix_errors(matrix({**GOOD, where: hostile}))) == 1


SSH = """#!/bin/sh
printf '%s\\n' "$*" >"$0.said"
exit 1
"""


@pytest.mark.real
@pytest.mark.parametrize("name", ["openmpi-4", "openmpi-5"])
def test_a_launcher_hands_a_shell_what_was_written(tmp_path: Path, stacks_here: Stacks, name: str) -> None:
    """What stands for ssh keeps the line that a shell on the other node would read; it means what the matrix says."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    stack: Stack = family_of(name).locate(name, [stacks_here(name)])
    start = LaunchRequest(
        stack=stack,
        contexts=[RankContext(1, "far", ("true",), {"A": "$(id)"})],
        mca={"btl_tcp_if_include": GOOD["mca"]},
        cores=2,
        root=True,
        ssh_config=str(tmp_path / "none"),
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        Mpirun().command(start).argv, env={**os.environ, "PATH": path}, capture_output=True, timeout=60, check=False
    )
    assert done.returncode != 0
    said = (tmp_path / "ssh.said").read_text()
    words = shlex.split(said)
    assert "far" in words
    assert "$(" not in said
    assert "`" not in said
    if name == "openmpi-4":  # later ones tell the daemon in a message
        assert GOOD["mca"] in words
