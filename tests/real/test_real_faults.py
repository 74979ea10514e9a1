"""The test of the judges: ranks that fail on purpose, in every way that a shipped matrix knows, under a real mpirun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from junitparser import JUnitXml

pytestmark = [pytest.mark.real, pytest.mark.nightly(reason=".ci/run runs matrices/faults.yaml itself")]

MATRIX = Path(__file__).parents[2] / "matrices" / "faults.yaml"

OUTCOMES = {
    "ob1-tcp-none": "passed",
    "ob1-tcp-flood": "passed",
    "ob1-tcp-segfault": "crash",
    "ob1-tcp-segfault-in": "crash",
    "ob1-tcp-abort": "crash",
    "ob1-tcp-abort-in": "crash",
    "ob1-tcp-exit": "error",
    "ob1-tcp-hard-exit": "error",
    "ob1-tcp-early-exit": "error",
    "ob1-tcp-raise": "error",
    "ob1-tcp-raise-in": "error",
    "ob1-tcp-no-memory": "out_of_memory",
    "ob1-tcp-no-memory-in": "out_of_memory",
    "ob1-tcp-no-malloc": "error",
    "ob1-tcp-wrong-data": "wrong_result",
    "ob1-tcp-hang": "hang",
    "ob1-tcp-hang-in": "hang",
    "ob1-tcp-slow": "timeout",
    "ob1-tcp-cut": "network_failure",
    "ob1-tcp-missing-library": "missing_library",
    "ob1-tcp-missing-module": "missing_library",
    "ob1-tcp-missing-mpi": "missing_library",
    "ob1-tcp-no-interpreter": "launch_failure",
    "ob1-tcp-other-mpi": "launch_failure",
    "ob1-tcp-alone": "wrong_result",
    "ob1-no-interface-none": "transport_unavailable",
    "ucx-no-interface-none": "transport_unavailable",
    "ucx-tcp-none": "passed",
    "ucx-tcp-segfault-in": "crash",
    "ucx-tcp-kill": "crash",
    "ucx-tcp-hard-exit": "error",
    "ucx-tcp-early-exit": "error",
    "ucx-tcp-cut": "network_failure",
    "ucx-tcp-ucx-hang": "hang",
}
# Which of two that see the death of a rank speaks first is chance.
EITHER = {
    "ob1-tcp-kill": {"crash", "error"},
    "ob1-tcp-kill-in": {"crash", "error"},
    # PRRTE does not always end after a rank that ended while others connect.
    "ob1-tcp-no-program": {"launch_failure", "hang"},
}


def test_every_fault_is_judged_as_what_it_is(
    pytester: pytest.Pytester, stack_prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = pytester.path / "stacks"
    home.mkdir()
    (home / "openmpi-5").symlink_to(stack_prefix)
    monkeypatch.setenv("HETGPU_STACKS", str(home))
    ran = pytester.runpytest_subprocess("--hetgpu-matrix", str(MATRIX), "-p", "no:xdist", timeout=240)

    junit = JUnitXml.fromfile(str(pytester.path / "reports" / "latest" / "junit.xml"))
    cells = {
        str(case.name).removeprefix("two-ranks-"): {p.get("name"): p.get("value") for p in case._elem.iter("property")}
        for suite in junit
        for case in suite
    }
    outcomes = {name: cell["outcome"] for name, cell in cells.items()}
    assert {name: found for name, found in outcomes.items() if name not in EITHER} == OUTCOMES
    assert all(outcomes[name] in either for name, either in EITHER.items())
    expected = {name: "ok" if kind == "passed" else "known" for name, kind in outcomes.items()}
    assert {name: cell["verdict"] for name, cell in cells.items()} == expected
    assert ran.ret == pytest.ExitCode.OK
    check_conditions(pytester.path / "reports" / "latest")


def check_conditions(folder: Path) -> None:
    """The condition of each key is its workload, or the two of one fault; without an interface it is the transport."""
    (several,) = json.loads((folder / "boundary.json").read_text())["matrices"].values()
    found = {one["key"]: [part for term in one["terms"] for part in term] for one in several if one["key"]}
    for key in ("unreachable@openmpi", "no-transport@ucx"):
        assert [part["axis"] for part in found.pop(key)] == ["transport"]
    for key, parts in found.items():
        workloads = [part["values"] for part in parts if part["axis"] == "workload"]
        assert [len(values) in (1, 2) for values in workloads] == [True], key
