"""Runs of several machines in one PostgreSQL database, by the variable HETGPU_HISTORY; its password is nowhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.store import history
from tests.postgresql_server import PASSWORD, PostgresqlServer, variable

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
Latest = Callable[[], Path]
#: The password as it is, and as a URL has it.
SPELLINGS = (PASSWORD, "k33per%2Fof%40the%2Bserver")


@pytest.fixture
def server(postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch) -> PostgresqlServer:
    """A server without a history, which the variable names."""
    for name, value in variable(postgresql.fresh()).items():
        monkeypatch.setenv(name, value)
    return postgresql


@pytest.fixture
def hetgpu(pytester: pytest.Pytester) -> Callable[..., tuple[int, str]]:
    """Run `hetgpu` in pytester's folder; return its exit code and its output."""

    def run(*arguments: str) -> tuple[int, str]:
        command = (sys.executable, "-m", "pytest_hetgpu.cli", *arguments)
        done = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, timeout=60, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    return run


Hetgpu = Callable[..., tuple[int, str]]


def holders(folder: Path) -> list[str]:
    """The files below a folder that hold the password."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if any(one.encode() in path.read_bytes() for one in SPELLINGS)]


def shown(text: str) -> list[str]:
    return [one for one in SPELLINGS if one in text]


@pytest.mark.slow
def test_a_database_is_read_like_a_file(
    run_pytest: Run,
    matrix: Write,
    latest: Latest,
    mode: tuple[str, ...],
    server: PostgresqlServer,
    hetgpu: Hetgpu,
    pytester: pytest.Pytester,
) -> None:
    path = matrix(["good", "other"])
    first = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    path.write_text(path.read_text().replace("{BEHAVE: other}", "{BEHAVE: crash}"))
    runs = [latest()]
    second = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    runs.append(latest())
    assert (first.ret, second.ret) == (0, 1)
    assert [one.id for one in history.list_runs(server.url())] == [run.name for run in reversed(runs)]
    second.stdout.fnmatch_lines([f"*since {runs[0].name}*"])
    assert f"the run before, {runs[0].name}" in (runs[1] / "index.html").read_text(encoding="utf-8")
    assert not list(pytester.path.rglob("*.sqlite"))
    url = str(server.url())
    for run in runs:
        assert hetgpu("report", str(run), "--history", "team.sqlite")[0] == 0
        code, text = hetgpu("report", str(run), "--history", url)
        assert (code, text.splitlines()[-1]) == (0, f"put into {url}")
    for command in ("history", "history --last 1", "compare last:1 latest"):
        arguments = command.split()
        by_file = hetgpu(*arguments, "--history", "team.sqlite")
        assert by_file[0] == (1 if arguments[0] == "compare" else 0), by_file
        assert hetgpu(*arguments, "--history", url) == by_file
        assert hetgpu(*arguments) == by_file
    assert holders(pytester.path) == []
    assert shown(str(first.stdout) + str(first.stderr) + str(second.stdout) + str(second.stderr)) == []


def test_the_option_is_given_without_the_password(
    run_pytest: Run, matrix: Write, server: PostgresqlServer, pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    url = str(server.url())
    pytester.makeini(f"[pytest]\nhetgpu_history = {url}\n")
    assert run_pytest("--hetgpu-matrix", "demo.yaml").ret == 0
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-history", url, "-v").ret == 0
    assert len(history.list_runs(server.url())) == 2
    assert holders(pytester.path / "reports") == []
    named = [path for path in (pytester.path / "reports").rglob("main*.jsonl") if url in path.read_text()]
    assert named, "the journal has the command line"


@pytest.mark.parametrize("how", ["option", "ini", "command"])
def test_a_password_is_refused_where_others_can_read_it(
    run_pytest: Run, matrix: Write, how: str, hetgpu: Hetgpu, server: PostgresqlServer, pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    (url,) = variable(server.url()).values()
    if how == "command":
        code, text = hetgpu("history", "--history", url)
        name = "--history"
    else:
        if how == "ini":
            pytester.makeini(f"[pytest]\nhetgpu_history = {url.replace('%', '%%')}\n")
            with pytest.MonkeyPatch.context() as patch:
                patch.delenv("HETGPU_HISTORY")
                done = run_pytest("--hetgpu-matrix", "demo.yaml")
        else:
            done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-history", url)
        code, text = int(done.ret), f"{done.stdout}{done.stderr}"
        name = "--hetgpu-history" if how == "option" else f"hetgpu_history in {pytester.path / 'tox.ini'}"
    assert code == 4
    assert f"{name}: a password does not belong here, where others can read it: set HETGPU_HISTORY to the" in text
    assert "~/.pgpass" in text
    assert shown(text) == []
    assert not (pytester.path / "reports").exists()


def test_a_server_that_does_not_answer_fails_no_run(
    run_pytest: Run,
    matrix: Write,
    latest: Latest,
    hetgpu: Hetgpu,
    server: PostgresqlServer,
    monkeypatch: pytest.MonkeyPatch,
    pytester: pytest.Pytester,
) -> None:
    matrix(["good"])
    (url,) = variable(server.url()).values()
    monkeypatch.setenv("HETGPU_HISTORY", url.replace(f":{server.port}/", ":1/"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 0
    address = str(server.url()).replace(f":{server.port}/", ":1/")
    why = f"{address}: it cannot be opened: connection failed: * port 1 failed: Connection refused"
    later = f"hetgpu report */reports/* --history {address} puts it in later"
    done.stdout.fnmatch_lines([f"history: this run is not in it ({why}); {later}"])
    for arguments in (("history",), ("compare", "last:1", "latest")):
        code, text = hetgpu(*arguments)
        assert (code, text.startswith("ERROR: ")) == (4, True)
        assert f"{address}: it cannot be opened: " in text
        assert shown(text) == []
    assert shown(f"{done.stdout}{done.stderr}") == []
    assert holders(pytester.path / "reports") == []
    monkeypatch.setenv("HETGPU_HISTORY", url)
    assert hetgpu("report", str(latest()), "--history", str(server.url()))[0] == 0
    assert [one.id for one in history.list_runs(server.url())] == [latest().name]


NO_DRIVER = """\
import importlib.util

find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "psycopg" else find(name, package)
"""


def test_a_driver_that_is_not_installed_stops_before_the_run(
    run_pytest: Run, matrix: Write, server: PostgresqlServer, pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    pytester.makeconftest(NO_DRIVER)
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 4
    needs = f"the history {server.url()} needs psycopg, not installed here: pip install 'pytest-hetgpu[postgresql]'"
    assert needs in str(done.stderr)
    assert not (pytester.path / "reports").exists()
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-plan").ret == 0
