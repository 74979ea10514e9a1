"""Every option, its ini key and its variable; without xdist, with -n0 and with -n2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]


def test_matrix_by_ini_and_by_variable(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix(["good"])
    monkeypatch.setenv("HETGPU_MATRIX", "demo.yaml")
    assert run_pytest(*mode).ret == 0
    monkeypatch.delenv("HETGPU_MATRIX")
    pytester.makeini("[pytest]\nhetgpu_matrix = demo.yaml\nhetgpu_reports = elsewhere\n")
    assert run_pytest(*mode).ret == 0
    assert (pytester.path / "elsewhere" / "latest" / "junit.xml").exists()


def test_reports_option_wins_over_variable(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix(["good"])
    monkeypatch.setenv("HETGPU_REPORTS", "by-variable")
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-reports", "by-option", *mode).ret == 0
    assert (pytester.path / "by-option" / "latest" / "summary.md").exists()
    assert not (pytester.path / "by-variable").exists()


def test_plan_prints_every_command_and_starts_nothing(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], stacks: Path, pytester: pytest.Pytester
) -> None:
    matrix(["good", "crash"], "exclude:\n  - {how: crash, reason: it burns}\n")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-plan", *mode)
    assert done.ret == 0
    launcher = stacks / "openmpi-5" / "bin" / "mpirun"
    done.stdout.fnmatch_lines(
        [
            "two-ob1-tcp-allreduce-good",
            "  node 0: cpu (cpu) on localhost, 1 rank",
            "  timeout: 120 s",
            f"  $ {launcher} *--mca pml ob1* -np 2 env BEHAVE=good * -m mpi4py *allreduce.py --sizes 8,1024 *",
            "two-ob1-tcp-allreduce-crash",
            "  excluded: it burns",
        ]
    )
    assert not (pytester.path / "reports").exists()


@pytest.mark.usefixtures("no_stack")
def test_plan_without_the_stack_still_prints_commands(run_pytest: Run, matrix: Write) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-plan")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["  not here: stack openmpi-5*", "  $ mpirun * python3 -m mpi4py *"])


def test_cell_runs_one(run_pytest: Run, matrix: Write, mode: tuple[str, ...]) -> None:
    matrix(["good", "crash"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-cell", "two-ob1-tcp-allreduce-good", *mode)
    assert done.ret == 0
    done.assert_outcomes(passed=1)


def test_unknown_cell_is_a_usage_error_with_a_suggestion(run_pytest: Run, matrix: Write, mode: tuple[str, ...]) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-cell", "two-ob1-tcp-allreduce-god", *mode)
    assert done.ret == 4
    done.stderr.fnmatch_lines(
        ["ERROR: no cell 'two-ob1-tcp-allreduce-god' in *demo.yaml*did you mean 'two-ob1-tcp-allreduce-good'?*"]
    )


def test_timeout_of_a_cell_wins_over_the_option(
    run_pytest: Run, matrix: Write, pytester: pytest.Pytester, mode: tuple[str, ...]
) -> None:
    path = matrix(["good"])
    path.write_text(path.read_text().replace("env: {BEHAVE: good}", "timeout: 7"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-timeout", "33", "--hetgpu-plan", *mode)
    done.stdout.fnmatch_lines(["  timeout: 7 s"])
    path.write_text(path.read_text().replace("timeout: 7", ""))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-timeout", "33", "--hetgpu-plan", *mode)
    done.stdout.fnmatch_lines(["  timeout: 33 s"])


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "inf"])
def test_impossible_timeout(run_pytest: Run, matrix: Write, value: str) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", f"--hetgpu-timeout={value}")
    assert done.ret == 4
    done.stderr.fnmatch_lines([f"ERROR: --hetgpu-timeout: '{value}' is not a number of seconds above 0"])


def test_inventory_that_lacks_the_hardware_skips(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    (pytester.path / "hosts.yaml").write_text("hardware: {other: [10.0.0.1]}\n")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-inventory", "hosts.yaml", *mode)
    assert done.ret == 10
    done.stdout.fnmatch_lines(["*needs hardware cpu, which the inventory hosts.yaml lacks*"])


@pytest.mark.parametrize(
    "option", ["--hetgpu-plan", "--hetgpu-cell=x", "--hetgpu-inventory=x.yaml", "--hetgpu-baseline=x"]
)
def test_options_without_a_matrix(run_pytest: Run, option: str) -> None:
    done = run_pytest(option)
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: --hetgpu-* needs a matrix: give --hetgpu-matrix FILE"])


def test_marks_and_keywords_select_cells(run_pytest: Run, matrix: Write, mode: tuple[str, ...]) -> None:
    matrix(["good", "crash"])
    for option, expression, count in (
        ("-m", "good and cpu and ob1 and not rocm", 1),
        ("-k", "crash", 1),
        ("-m", "ob1-tcp and allreduce and hetgpu", 2),
        ("-m", "rocm", 0),
    ):
        done = run_pytest(
            "--hetgpu-matrix", "demo.yaml", "--collect-only", "-q", "--strict-markers", option, expression, *mode
        )
        assert len([line for line in done.outlines if "::test_cell[" in line]) == count, expression


def test_last_failed(run_pytest: Run, matrix: Write, mode: tuple[str, ...]) -> None:
    matrix(["good", "crash"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", *mode).ret == 1
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--lf", *mode)
    done.assert_outcomes(failed=1)


def test_value_named_like_a_registered_mark(run_pytest: Run, matrix: Write, pytester: pytest.Pytester) -> None:
    matrix(["good", "skip"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: demo.yaml:8: how 'skip' has the name of a registered pytest mark; rename it"])


def test_verbose_and_quiet(run_pytest: Run, matrix: Write, mode: tuple[str, ...]) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "-v", *mode)
    done.stdout.fnmatch_lines(
        ["*two-ob1-tcp-allreduce-good*PASSED*" if mode[0] != "-n2" else "*PASSED*two-ob1-tcp-allreduce-good*"]
    )
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "-q", *mode)
    assert not [line for line in done.outlines if line.startswith("ok ")]


def test_nothing_changes_for_others(run_pytest: Run, pytester: pytest.Pytester, mode: tuple[str, ...]) -> None:
    pytester.makepyfile("def test_it(): pass\ndef test_cells(scenario): raise AssertionError\n")
    done = run_pytest(*mode)
    done.assert_outcomes(passed=1, skipped=1)
    assert not (pytester.path / "reports").exists()


def test_scenario_module_of_ones_own(
    run_pytest: Run, matrix: Write, pytester: pytest.Pytester, mode: tuple[str, ...]
) -> None:
    matrix(["good", "crash"])
    pytester.makepyfile(
        """
        def test_mine(run, scenario, cluster):
            outcome = run(check=False)
            assert (outcome.verdict.value == "ok") == (scenario.value("how") == "good")
            assert [node.node.hardware.name for node in cluster.nodes] == ["cpu", "cpu"]
        """
    )
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode, pytester.path)
    assert done.ret == 0
    done.assert_outcomes(passed=2)


@pytest.mark.parametrize("value", ["0", "fast", "OFF"])
def test_impossible_wire(run_pytest: Run, matrix: Write, value: str) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", f"--hetgpu-wire={value}")
    assert done.ret == 4
    done.stderr.fnmatch_lines([f"ERROR: --hetgpu-wire: '{value}' is not a number of seconds above 0, nor off"])


@pytest.mark.parametrize("given", [("--hetgpu-wire", "off"), ("--hetgpu-wire=1.5",)])
def test_the_wire_of_a_cell_that_failed_is_asked_for_again(
    run_pytest: Run, matrix: Write, given: tuple[str, ...]
) -> None:
    matrix(["crash"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *given)
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"*--hetgpu-wire {' '.join(given).partition('wire')[2].lstrip('= ')}*"])


def test_processes_of_one_machine_have_nothing_between_them(
    run_pytest: Run, matrix: Write, pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 0
    done.stdout.no_fnmatch_line("wire of *")
    assert "wire" not in (pytester.path / "reports/latest/junit.xml").read_text()
