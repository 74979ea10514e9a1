"""A conftest.py of the user's own implements the hooks of pytest_hetgpu/newhooks.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]
Matrix = Callable[..., Path]
Latest = Callable[[], Path]

pytestmark = pytest.mark.usefixtures("stacks")

JOB = """
from dataclasses import replace

def pytest_hetgpu_job(config, scenario, job):
    command = replace(job.command, env={**job.command.env, "SITE_TUNING": scenario.value("how")})
    return replace(job, command=command, timeout=77.0)
"""
OUTCOME = """
from pathlib import Path

def pytest_hetgpu_outcome(config, scenario, outcome):
    line = f"{scenario.id} {outcome.kind.value} {outcome.verdict.value}"
    journal = "".join(path.read_text() for path in Path("reports/latest/journal").glob("*.jsonl"))
    with Path("outcomes.txt").open("a") as file:
        file.write(f"{line} {scenario.label in journal}\\n")
"""


def jobs(run: Path) -> dict[str, dict[str, object]]:
    found = [json.loads(path.read_text())["job"] for path in run.glob("scenarios/*/job.json")]
    return {job["label"]: job for job in found}


def test_without_a_matrix_the_hooks_are_known(pytester: pytest.Pytester, run_pytest: Run) -> None:
    pytester.makeconftest(JOB + OUTCOME)
    pytester.makepyfile("def test_plain(): pass")
    run_pytest("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_cells_are_removed_and_reordered(
    matrix: Matrix, run_pytest: Run, mode: tuple[str, ...], pytester: pytest.Pytester, latest: Latest
) -> None:
    pytester.makeconftest("""
        def pytest_hetgpu_scenarios(config, scenarios):
            scenarios[:] = [cell for cell in reversed(scenarios) if cell.value("how") != "silent"]
    """)
    matrix(["good", "silent", "other"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "-v", *mode)
    done.assert_outcomes(passed=2)
    assert {label.rpartition("-")[2] for label in jobs(latest())} == {"good", "other"}
    if "-n2" not in mode:
        done.stdout.fnmatch_lines(["*-other?*", "*-good?*"])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("scenarios.clear()", "no cell is left to run"),
        ("scenarios.append(scenarios[0])", "two-ob1-tcp-allreduce-good is listed 2 times"),
        ("scenarios.append('more')", "'more' is no cell of this run"),
    ],
)
def test_other_cells_are_a_usage_error(
    matrix: Matrix, run_pytest: Run, pytester: pytest.Pytester, body: str, told: str
) -> None:
    pytester.makeconftest(f"def pytest_hetgpu_scenarios(config, scenarios): {body}")
    matrix()
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 4
    assert f"pytest_hetgpu_scenarios of conftest.py: {told}" in done.stderr.str()


def test_a_job_that_a_hook_changed_is_started_and_recorded(
    matrix: Matrix, run_pytest: Run, mode: tuple[str, ...], pytester: pytest.Pytester, latest: Latest
) -> None:
    pytester.makeconftest(JOB)
    matrix(["good", "other"])
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode).assert_outcomes(passed=2)
    for label, job in jobs(latest()).items():
        assert job["timeout"] == 77.0
        assert f'"SITE_TUNING": "{label.rpartition("-")[2]}"' in json.dumps(job["command"])


def test_a_plan_shows_a_job_that_a_hook_changed(matrix: Matrix, run_pytest: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(JOB)
    matrix()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-plan")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["  timeout: 77 s", "  $ *SITE_TUNING=good *"])


OTHERS = [
    ("replace(job, label='other')", "changed label of two-ob1-tcp-allreduce-good"),
    ("replace(job, nodes=job.nodes[:1], matrix='m')", "changed matrix, nodes of two-ob1-tcp-allreduce-good"),
    ("'job'", "returned 'job' for two-ob1-tcp-allreduce-good, not a Job"),
]


@pytest.mark.parametrize(("made", "told"), OTHERS)
def test_a_job_of_another_cell_ends_a_plan(
    matrix: Matrix, run_pytest: Run, pytester: pytest.Pytester, made: str, told: str
) -> None:
    pytester.makeconftest(f"from dataclasses import replace\ndef pytest_hetgpu_job(job): return {made}")
    matrix()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-plan")
    assert done.ret == 4
    assert f"pytest_hetgpu_job of conftest.py {told}" in done.stderr.str()


def test_a_job_of_another_cell_is_an_error_of_its_cell(
    matrix: Matrix, run_pytest: Run, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(f"from dataclasses import replace\ndef pytest_hetgpu_job(job): return {OTHERS[0][0]}")
    matrix()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 1
    assert f"pytest_hetgpu_job of conftest.py {OTHERS[0][1]}" in done.stdout.str()
    assert "Traceback" not in done.stdout.str()


def test_outcomes_come_after_the_journal_has_them(
    matrix: Matrix, run_pytest: Run, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(OUTCOME)
    matrix(["good", "silent"], more="exclude: [{how: silent, reason: not today}]\n")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    done.assert_outcomes(passed=1, skipped=1)
    assert sorted((pytester.path / "outcomes.txt").read_text().splitlines()) == [
        "two-ob1-tcp-allreduce-good passed ok True",
        "two-ob1-tcp-allreduce-silent skipped not_run True",
    ]


def test_the_outcome_of_a_test_that_fails_by_itself_comes_after_that_of_its_run(
    matrix: Matrix, run_pytest: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(OUTCOME)
    pytester.makepyfile("def test_own(run):\n    run()\n    assert False")
    matrix()
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "-p", "no:xdist", pytester.path).ret == 1
    assert (pytester.path / "outcomes.txt").read_text().splitlines() == [
        "two-ob1-tcp-allreduce-good passed ok True",
        "two-ob1-tcp-allreduce-good error new True",
    ]


@pytest.mark.parametrize("fails", ["1 / 0", "pytest.fail('no server')"])
def test_an_outcome_hook_that_fails_is_a_warning(
    matrix: Matrix, run_pytest: Run, mode: tuple[str, ...], pytester: pytest.Pytester, fails: str
) -> None:
    pytester.makeconftest(f"import pytest\ndef pytest_hetgpu_outcome(outcome): {fails}")
    matrix()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "-W", "error", *mode)
    assert done.ret == 0
    done.assert_outcomes(passed=1, warnings=1)
    assert "pytest_hetgpu_outcome of conftest.py: two-ob1-tcp-allreduce-good: " in done.stdout.str()


def test_lines_of_a_report_hook_are_in_the_summary(
    matrix: Matrix, run_pytest: Run, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("""
        def pytest_hetgpu_report(config, run):
            assert not hasattr(config, "workerinput")
            return [f"junit: {(run / 'junit.xml').exists()}", "uploaded"]
    """)
    matrix(["good", "other"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 0
    assert done.stdout.str().count("junit: True\nuploaded\nreports: ") == 1


def test_a_report_hook_that_fails_is_a_line(matrix: Matrix, run_pytest: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_hetgpu_report(config, run): 1 / 0")
    matrix()
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 0
    assert "pytest_hetgpu_report of conftest.py: ZeroDivisionError: division by zero" in done.stdout.str()


def test_a_job_hook_that_skips_records_its_cell_as_not_run(
    matrix: Matrix, run_pytest: Run, mode: tuple[str, ...], pytester: pytest.Pytester, latest: Latest
) -> None:
    pytester.makeconftest("import pytest\ndef pytest_hetgpu_job(job): pytest.skip('no licence')")
    matrix()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 10
    done.assert_outcomes(skipped=1)
    assert "no licence" in (latest() / "junit.xml").read_text()


def test_a_job_hook_that_skips_is_in_a_plan(matrix: Matrix, run_pytest: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import pytest\ndef pytest_hetgpu_job(job): pytest.skip('no licence')")
    matrix()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-plan")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["  not run: no licence"])


def test_a_resumed_run_counts_only_the_cells_that_a_hook_left(
    matrix: Matrix, run_pytest: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("def pytest_hetgpu_scenarios(scenarios): del scenarios[1:]")
    matrix(["good", "other"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml").ret == 0
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume")
    assert "1 of 2 cells" not in done.stdout.str()
    done.stdout.fnmatch_lines(["resumed *: 1 of 1 cells are kept, nothing is left to run"])


def test_a_signal_ends_a_report_hook_that_hangs(matrix: Matrix, pytester: pytest.Pytester, latest: Latest) -> None:
    pytester.makeconftest("""
        import os, signal, time

        def pytest_hetgpu_report(run):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(50)
    """)
    matrix()
    done = pytester.runpytest_subprocess("--hetgpu-matrix", "demo.yaml", "-p", "no:xdist", timeout=30)
    assert done.ret == 2
    assert (latest() / "index.html").exists()
