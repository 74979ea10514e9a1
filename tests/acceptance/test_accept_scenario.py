"""Scenario modules of users: what their own failures come to in the reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from junitparser import JUnitXml

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
Latest = Callable[[], Path]


def cells(path: Path) -> dict[str, dict[str, str]]:
    """Properties of every case by name, with the names of its result elements."""
    return {
        str(case.name): {
            "result": " ".join(type(element).__name__ for element in case.result),
            **{p.get("name"): p.get("value") for p in case._elem.iter("property")},
        }
        for suite in JUnitXml.fromfile(str(path))
        for case in suite
    }


@pytest.fixture
def module(pytester: pytest.Pytester) -> Callable[[str], str]:
    def write(text: str) -> str:
        pytester.path.joinpath("test_own.py").write_text(text)
        return "test_own.py"

    return write


def test_a_check_of_its_own_that_fails_is_no_pass(
    run_pytest: Run, matrix: Write, latest: Latest, module: Callable[[str], str], mode: tuple[str, ...]
) -> None:
    matrix(["good"])
    text = "def test_cell(run):\n    outcome = run()\n    assert len(outcome.measurements) == 99, 'too few points'\n"
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode, module(text))
    assert done.ret == 1
    (cell,) = cells(latest() / "junit.xml").values()
    assert (cell["outcome"], cell["verdict"]) == ("error", "new")
    assert "too few points" in cell["why"]
    assert cell["result"] in ("Failure", "Error")
    # What was measured stays.
    assert float(cell["latency[8,float32]"]) > 0
    assert "too few points" in (latest() / "summary.md").read_text()
    done.stdout.fnmatch_lines(["new *two-ob1-tcp-allreduce-good*too few points*"])


def test_a_fixture_of_its_own_that_fails_leaves_a_cell_that_failed(
    run_pytest: Run, matrix: Write, latest: Latest, module: Callable[[str], str]
) -> None:
    matrix(["good"])
    text = (
        "import pytest\n@pytest.fixture\ndef ready(cluster):\n    raise RuntimeError('the link is down')\n"
        "def test_cell(ready, run):\n    run()\n"
    )
    done = run_pytest("--hetgpu-matrix", "demo.yaml", module(text))
    done.assert_outcomes(errors=1)
    (cell,) = cells(latest() / "junit.xml").values()
    assert (cell["outcome"], cell["why"]) == ("error", "its test failed: RuntimeError: the link is down")


def test_a_failure_that_the_run_already_was_stays_what_it_was(
    run_pytest: Run, matrix: Write, latest: Latest, module: Callable[[str], str]
) -> None:
    matrix(["crash"])
    text = "def test_cell(run):\n    assert run(check=False).kind.value == 'passed'\n"
    assert run_pytest("--hetgpu-matrix", "demo.yaml", module(text)).ret == 1
    (cell,) = cells(latest() / "junit.xml").values()
    assert (cell["outcome"], cell["verdict"]) == ("crash", "new")


@pytest.mark.parametrize(("given", "told"), [("sometimes", "is none of warn, strict, off"), ("warn", "")])
def test_preflight_is_one_of_three(run_pytest: Run, matrix: Write, given: str, told: str) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", f"--hetgpu-preflight={given}")
    assert done.ret == (4 if told else 0)
    assert told in done.stderr.str()


@pytest.mark.usefixtures("testinfra")
def test_what_the_nodes_are_is_kept_with_the_run(run_pytest: Run, matrix: Write, latest: Latest) -> None:
    matrix(["good"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-preflight", "warn").ret == 0
    assert "## What the nodes are" in (latest() / "summary.md").read_text()
    assert (latest() / "placements" / "demo-two" / "environment.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(any(Path("/sys/class/infiniband").glob("*")), reason="this machine has RDMA devices")
@pytest.mark.usefixtures("testinfra")
def test_strict_preflight_is_the_verdict_before_anything_is_started(
    run_pytest: Run, matrix: Write, latest: Latest
) -> None:
    path = matrix(["good"])
    text = path.read_text().replace("{ob1-tcp: {family: ob1}}", "{verbs: {family: ucx, tls: [rc]}}")
    path.write_text(text.replace("{platform: cpu}", "{platform: cpu, fabric: {kind: roce}}"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-preflight=strict")
    (cell,) = cells(latest() / "junit.xml").values()
    assert "there is no RDMA device" in cell["preflight"]
    assert done.ret == 1
    assert cell["signature"].startswith("preflight@")
    assert cell["seconds"] == "0.0"
