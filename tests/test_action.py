"""`action.yml`: its steps are run in a folder where pytest and pip are stand-ins; no input is pasted into a script."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_ci_files import FAKE

ROOT = Path(__file__).resolve().parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
VALUE = re.compile(r"\$\{\{ (inputs|steps\.run\.outputs)\.([\w-]+) \}\}")
PYTEST = FAKE.replace('echo "$@"', 'printf "%s|" "$@"').replace(
    'echo "$run" >', 'echo "# Compatibility" > "reports/$run/summary.md"\necho "$run" >'
)
PYTHON = f"""\
#!/bin/sh
if [ "$1" = -m ]; then printf '%s|' "$@" > installed; exit; fi
exec {sys.executable} "$@"
"""


class RunOfSteps:
    """The steps of the action in a folder of their own, as GitHub runs them."""

    def __init__(self, place: Path, code: int = 0, inputs: Mapping[str, str] | None = None) -> None:
        self.place, self.code = place, code
        given = {name: value.get("default", "") for name, value in ACTION["inputs"].items()}
        self.inputs = {**given, "matrix": "m.yaml", **(inputs or {})}
        self.outputs: dict[str, str] = {}
        self.failed = ""
        self.ran: list[str] = []
        for name, text in {"pytest": PYTEST, "python": PYTHON}.items():
            (place / "bin").mkdir(exist_ok=True)
            (place / "bin" / name).write_text(text)
            (place / "bin" / name).chmod(0o755)
        for step in STEPS:
            if self.wanted(step.get("if", "success()")):
                self.ran.append(step["name"])
                if "run" in step and self.status(step):
                    self.failed = self.failed or step["name"]

    def wanted(self, condition: str) -> bool:
        """Evaluate the two conditions that the action uses."""
        assert condition in ("success()", "always() && steps.run.outputs.report != ''")
        return not self.failed if condition == "success()" else self.outputs.get("report", "") != ""

    def fill(self, text: str) -> str:
        values = {"inputs": self.inputs, "steps.run.outputs": self.outputs}
        return VALUE.sub(lambda found: values[found[1]].get(found[2], ""), text)

    def status(self, step: dict[str, Any]) -> int:
        assert step["shell"] == "bash"
        env = {name: self.fill(value) for name, value in step.get("env", {}).items()}
        env |= {"PATH": f"{self.place / 'bin'}:/usr/bin:/bin", "CODE": env.get("CODE", str(self.code))}
        env |= {"GITHUB_ACTION_PATH": str(ROOT), "RUNNER_TEMP": str(self.place)}
        env |= {name: str(self.place / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
        done = subprocess.run(command, cwd=self.place, env=env, capture_output=True, text=True, check=False)
        if step.get("id") == "run" and (self.place / "GITHUB_OUTPUT").exists():
            lines = (self.place / "GITHUB_OUTPUT").read_text().splitlines()
            self.outputs = dict(line.split("=", 1) for line in lines)
        return done.returncode

    @property
    def arguments(self) -> list[str]:
        return (self.place / "told").read_text().split("|")[:-1]


def test_no_value_is_pasted_into_a_script() -> None:
    scripts = [step["run"] for step in STEPS if "run" in step]
    assert len(scripts) == 4
    assert [script for script in scripts if "${{" in script] == []


def test_every_input_is_used_and_described_and_every_output_is_set() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{\{ inputs\.([\w-]+)", text))
    assert used == set(ACTION["inputs"])
    assert all(one["description"] for one in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))
    assert set(ACTION["outputs"]) == {"exit-code", "report"}


@pytest.mark.parametrize("code", [0, 1, 10])
def test_the_action_ends_as_the_run_did(tmp_path: Path, code: int) -> None:
    run = RunOfSteps(tmp_path, code)
    assert run.outputs == {"exit-code": str(code), "report": str(tmp_path / "report")}
    assert run.failed == ("End as the run did" if code else "")
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text() == "# Compatibility\n"
    assert (tmp_path / "report" / "index.html").exists()
    # The report is uploaded, and the history kept, whatever the exit code is.
    assert run.ran == [step["name"] for step in STEPS]


def test_a_usage_error_has_no_report(tmp_path: Path) -> None:
    run = RunOfSteps(tmp_path, 4)
    assert run.outputs == {"exit-code": "4", "report": ""}
    assert run.failed == "End as the run did"
    assert not {"Show the summary", "Upload the report", "Keep the history and the baseline"} & set(run.ran)


def test_arguments_are_split_as_in_a_shell_and_not_expanded(tmp_path: Path) -> None:
    run = RunOfSteps(
        tmp_path,
        inputs={"inventory": "my hosts.yaml", "arguments": "-k 'a b' -q $(touch made) `touch made` ; touch made"},
    )
    hosts = ["--hetgpu-inventory", "my hosts.yaml"]
    rest = ["-k", "a b", "-q", "$(touch", "made)", "`touch", "made`", ";", "touch", "made"]
    assert run.arguments == ["--hetgpu-matrix", "m.yaml", "--hetgpu-reports", "reports", *hosts, *rest]
    assert not (tmp_path / "made").exists()


def test_without_arguments_pytest_gets_none(tmp_path: Path) -> None:
    assert RunOfSteps(tmp_path).arguments == ["--hetgpu-matrix", "m.yaml", "--hetgpu-reports", "reports"]


def test_a_wrong_argument_fails_before_pytest_starts(tmp_path: Path) -> None:
    run = RunOfSteps(tmp_path, inputs={"arguments": "'unclosed"})
    assert run.failed == "Run the matrix"
    assert not (tmp_path / "told").exists()


@pytest.mark.parametrize("name", ["matrix", "inventory", "version", "extras"])
def test_a_hostile_input_is_one_word(tmp_path: Path, name: str) -> None:
    hostile = '"; touch made; echo "$(touch made)`touch made`'
    RunOfSteps(tmp_path, inputs={name: hostile})
    assert not (tmp_path / "made").exists()
    words = (tmp_path / "installed").read_text().split("|") + (tmp_path / "told").read_text().split("|")
    assert [word for word in words if hostile in word] != []


@pytest.mark.parametrize(
    ("inputs", "installed"),
    [
        ({}, f"{ROOT}[docker]"),
        ({"extras": ""}, str(ROOT)),
        ({"version": "0.1.0", "extras": "mpi,torch"}, "pytest-hetgpu[mpi,torch]==0.1.0"),
    ],
)
def test_the_version_that_is_asked_for_is_installed(tmp_path: Path, inputs: dict[str, str], installed: str) -> None:
    RunOfSteps(tmp_path, inputs=inputs)
    assert (tmp_path / "installed").read_text() == f"-m|pip|install|{installed}|"


def test_the_history_is_kept_and_raw_logs_are_not_uploaded() -> None:
    restore, upload, save = (step for step in STEPS if "uses" in step)
    assert restore["uses"].startswith("actions/cache/restore@")
    assert save["uses"].startswith("actions/cache/save@")
    assert restore["with"]["path"] == save["with"]["path"]
    assert "reports/history.sqlite" in save["with"]["path"].split()
    assert restore["with"]["key"] == save["with"]["key"]
    assert upload["with"]["path"].split() == ["report", "!**/.private/**"]
