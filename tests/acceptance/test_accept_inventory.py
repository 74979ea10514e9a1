"""`--hetgpu-inventory` with the kinds of sources, by option, ini key and variable; without xdist, with -n0 and -n2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]


def test_a_hostfile_says_where_ranks_start(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    (pytester.path / "hosts").write_text("gpu1 slots=8\ngpu2 slots=8\ngpu3\n")
    arguments = ("--hetgpu-matrix", "demo.yaml", "--hetgpu-inventory", "hostfile:hosts")
    done = run_pytest(*arguments, "--hetgpu-plan", *mode)
    assert done.ret == 0
    done.stdout.fnmatch_lines(["  node 0: cpu (cpu) on gpu1, 1 rank", "  node 1: cpu (cpu) on gpu2, 1 rank"])
    assert "-H gpu1:1,gpu2:1" in done.stdout.str()
    assert run_pytest(*arguments, *mode).ret == 0


def test_by_ini_it_starts_at_its_file_and_by_variable_here(
    run_pytest: Run, matrix: Write, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix(["good"])
    pytester.makeini("[pytest]\nhetgpu_inventory = hostfile:hosts\n")
    (pytester.path / "hosts").write_text("gpu7\n")
    (pytester.path / "below").mkdir()
    monkeypatch.chdir(pytester.path / "below")
    plan = ("--hetgpu-matrix", "../demo.yaml", "--hetgpu-plan", "-p", "no:xdist", "-c", "../tox.ini")
    assert "on gpu7, 1 rank" in run_pytest(*plan).stdout.str()
    (pytester.path / "below" / "other").write_text("gpu8\n")
    monkeypatch.setenv("HETGPU_INVENTORY", "hostfile:other")
    assert "on gpu8, 1 rank" in run_pytest(*plan).stdout.str()


def test_what_is_wrong_ends_before_anything_starts(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    (pytester.path / "hosts").write_text("gpu1\ngpu2 slot=4\n")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-inventory", "hostfile:hosts", *mode)
    assert done.ret == 4
    assert "ERROR: hosts:2: unknown setting 'slot' of gpu2 (known: " in done.stderr.str()
    assert not (pytester.path / "reports").exists()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-inventory", "hostfil:hosts", *mode)
    assert done.ret == 4
    assert "hostfil:hosts: unknown kind of inventory 'hostfil'" in done.stderr.str()


def test_standard_input_is_pytests(run_pytest: Run, matrix: Write) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-inventory", "hostfile:-", "-p", "no:xdist")
    assert done.ret == 4
    assert "hostfile:-: standard input cannot be read" in done.stderr.str()
    assert "keep it in a file: hostfile:PATH" in done.stderr.str()


def test_a_failed_cell_is_run_again_with_it(run_pytest: Run, matrix: Write, pytester: pytest.Pytester) -> None:
    matrix(["crash"])
    (pytester.path / "hosts").write_text("localhost slots=2\n")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-inventory", "hostfile:hosts", "-p", "no:xdist")
    assert done.ret == 1
    assert "--hetgpu-inventory hostfile:hosts" in done.stdout.str()
