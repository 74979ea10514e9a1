"""No secret in what a CI publishes: reports, pytest's own XML, the terminal; whatever cells print and tests raise."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.reporting.test_fifty_secrets import KINDS

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]

# Not known by any form: by the variables that hold them alone.
HELD = {"HF_TOKEN": "zebra7crossing", "MY_PASSWORD": "p&ss/w0rd + 'quoted'", "SITE_SECRET": "ip10host7secret"}
PASSWORD = "hunter2secret"
MATRIX = """\
name: demo
hardware:
  cpu: {platform: cpu, env: {CELL_TOKEN: cellvalue77}}
axes:
  placement: {two: [cpu, cpu]}
  transport: {ob1-tcp: {family: ob1}}
  workload:
    program: {kind: command, mpi: false, check: false, timeout: 30,
              argv: ["%s", --password, "argvalue-99X", "--url=https://me:%s@host/x", "API_KEY=argkey-55Z"]}
  how: {shows: {env: {BEHAVE: program, MATRIX_PASSWORD: matrixvalue88}}}
"""
SCENARIO = """\
import logging, os, warnings
import pytest


def test_cell(run):
    run()


def test_by_itself(scenario, record_property):
    value = os.environ["HF_TOKEN"]
    print("captured", value, {texts!r})
    logging.getLogger().warning("logged %s", value)
    warnings.warn("warned of " + value)
    record_property("shown", value)
    raise RuntimeError("raised " + value + {texts!r})


def test_skipped(scenario):
    pytest.skip("for want of " + os.environ["HF_TOKEN"])


def test_known(scenario):
    pytest.xfail("because of " + os.environ["HF_TOKEN"])


@pytest.fixture
def broken(scenario):
    raise OSError("cannot open /tmp/token-" + os.environ["HF_TOKEN"] + "/prog.py on ip-" + os.environ["SITE_SECRET"])


def test_its_fixture(broken):
    pass
"""


ENDING = """\
import os


def test_a(request, record_testsuite_property):
    record_testsuite_property("shown", os.environ["HF_TOKEN"])
    request.session.shouldfail = "stop " + os.environ["HF_TOKEN"]
"""
DOCTEST = """\
    >>> import os
    >>> os.environ["HF_TOKEN"]
    1
"""
# Items of a plugin's own, with a representation of its own.
ITEM = """\
import os
import pytest
from _pytest._code.code import TerminalRepr


class Words(TerminalRepr):
    def toterminal(self, tw):
        tw.line("my own words: " + os.environ["HF_TOKEN"])


class Own(pytest.Item):
    def runtest(self):
        raise RuntimeError

    def repr_failure(self, excinfo):
        return Words()


class File(pytest.File):
    def collect(self):
        yield Own.from_parent(self, name="own")


def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".item":
        return File.from_parent(parent, path=file_path)
"""


def encoded(value: str) -> Iterator[str]:
    yield value
    yield quote(value, safe="")
    yield json.dumps(value)[1:-1]
    for before in ("", "a", "ab"):
        yield base64.b64encode(f"{before}{value}".encode()).decode()
        yield base64.urlsafe_b64encode(f"{before}{value}:x".encode()).decode()


def secrets() -> dict[str, str]:
    """What must not be seen, by what it is."""
    found = {f"kind {kind}": secret for kind, (_, secret) in KINDS.items()}
    for name, value in {**HELD, "CELL_TOKEN": "cellvalue77", "MATRIX_PASSWORD": "matrixvalue88"}.items():
        found |= {f"{name} {number}": text for number, text in enumerate(encoded(value))}
    return {**found, "url": PASSWORD, "argv": "argvalue-99X", "argv by name": "argkey-55Z"}


@pytest.fixture
def site(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, stacks: Path) -> Path:
    """A matrix whose program prints every secret, and scenarios that raise and print them."""
    for name, value in HELD.items():
        monkeypatch.setenv(name, value)
    texts = [text for text, _ in KINDS.values()]
    lines = [
        *texts,
        f"ERROR: cannot reach https://alice:{PASSWORD}@host/x",
        "MATRIX_PASSWORD=matrixvalue88 cellvalue77",
    ]
    lines += [f"{name} is printed as {text}." for name, value in HELD.items() for text in encoded(value)]
    folder = pytester.path / "token-zebra7crossing"
    folder.mkdir()
    program = folder / "prog.py"
    program.touch(mode=0o755)
    mpirun = stacks / "openmpi-5/bin/mpirun"
    mpirun.write_text(
        f"#!{sys.executable} -S\nimport sys\n"
        f"for line in {lines!r}: print(line)\n"
        f"for word in sys.argv: print(word)\n"
        f"raise SystemExit('ERROR: cannot reach https://alice:{PASSWORD}@host at ip-ip10host7secret')\n"
    )
    mpirun.chmod(0o755)
    (pytester.path / "m.yaml").write_text(MATRIX % (program, PASSWORD))
    (pytester.path / "a.item").touch()
    (pytester.path / "test_secret.py").write_text(SCENARIO.replace("{texts!r}", repr("\n".join(texts))))
    return pytester.path


def published(site: Path) -> dict[str, bytes]:
    """All that a CI would keep: the reports without what is private, and pytest's XML."""
    found = {str(path): path.read_bytes() for path in (site / "reports").rglob("*") if path.is_file()}
    found = {name: data for name, data in found.items() if "/.private/" not in name}
    return {**found, "own.xml": (site / "own.xml").read_bytes()}


def seen(done: pytest.RunResult, site: Path) -> dict[str, bytes]:
    """All that a CI would keep, and what it shows of the terminal."""
    return {"terminal": f"{done.stdout}\n{done.stderr}".encode(), **published(site)}


def wait_for(found: Callable[[], Path | None], seconds: float = 60) -> Path:
    deadline = time.monotonic() + seconds
    while (path := found()) is None:
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)
    return path


def traces(texts: dict[str, bytes]) -> list[tuple[str, str]]:
    return [
        (name, what)
        for name, data in texts.items()
        for what, secret in secrets().items()
        if secret.encode() in data or secret.replace("&", "&amp;").encode() in data
    ]


def test_what_a_ci_publishes_holds_no_secret(run_pytest: Run, site: Path, mode: tuple[str, ...]) -> None:
    given = ("--hetgpu-matrix", "m.yaml", "--junitxml", "own.xml", "-rA")
    done = run_pytest(*given, "--hetgpu-debug-rerun", "test_secret.py", *mode)
    assert done.ret == 1, str(done.stdout)
    assert not (found := traces(seen(done, site))), "\n".join(map(str, found))
    (run,) = {path.parent for path in (site / "reports").glob("*/junit.xml") if path.parent.name != "latest"}
    (log,) = run.glob("scenarios/*/output.log")
    text = log.read_text()
    assert "ERROR: cannot reach https://alice:[redacted]@host" in text
    assert "signature: ERROR-cannot-reach" in str(done.stdout)
    private = site / "reports" / ".private"
    raw = (private / run.name / f"{log.parent.name}.log").read_text()
    assert PASSWORD in raw
    assert [oct(path.stat().st_mode & 0o777) for path in (private, private / run.name)] == ["0o700"] * 2
    assert (private / ".gitignore").read_text() == "*\n"
    said = "logs held secrets: the text here is redacted, the raw logs are in reports/.private/"
    assert said in str(done.stdout)
    assert "held secrets" in (run / "summary.md").read_text()
    assert b"held secrets" in (run / "index.html").read_bytes()


def test_a_report_of_later_has_the_same_keys(run_pytest: Run, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_pytest("--hetgpu-matrix", "m.yaml")
    for name in HELD:
        monkeypatch.delenv(name)
    done = subprocess.run(
        (sys.executable, "-m", "pytest_hetgpu.cli", "report", "reports/latest/"),
        cwd=site, capture_output=True, text=True, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert "0 verdicts changed" in done.stdout, done.stdout + done.stderr
    keys = {
        event["outcome"]["signature"]["key"]
        for path in (site / "reports/latest/journal").glob("*.jsonl")
        for event in map(json.loads, path.read_text().splitlines())
        if event["event"] == "judged"
    }
    assert len(keys) == 1


def test_a_killed_run_publishes_no_raw_output(site: Path, stacks: Path) -> None:
    mpirun = stacks / "openmpi-5/bin/mpirun"
    end = f"print('password={PASSWORD}', flush=True); import time; time.sleep(60)"
    mpirun.write_text(mpirun.read_text().partition("raise SystemExit")[0] + end)
    given = ("--hetgpu-matrix", "m.yaml", "-p", "no:cacheprovider")
    with subprocess.Popen((sys.executable, "-m", "pytest", *given), cwd=site, stdout=subprocess.DEVNULL) as running:
        raw = wait_for(
            lambda: next((p for p in site.glob("reports/.private/*/*.log") if PASSWORD in p.read_text()), None)
        )
        running.kill()
    run = site / "reports" / raw.parent.name
    log = run / "scenarios" / raw.stem / "output.log"
    (site / "own.xml").touch()
    assert (traces(published(site)), log.exists()) == ([], False)
    done = subprocess.run(
        (sys.executable, "-m", "pytest_hetgpu.cli", "report", str(run)), cwd=site, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "password=[redacted]" in log.read_text()
    assert traces({"said": done.stdout, **published(site)}) == []
    assert PASSWORD in raw.read_text()


def test_a_plan_shows_no_secret(run_pytest: Run, site: Path) -> None:
    done = run_pytest("--hetgpu-matrix", "m.yaml", "--hetgpu-plan")
    assert done.ret == 0
    assert traces({"plan": f"{done.stdout}\n{done.stderr}".encode()}) == []
    assert "MATRIX_PASSWORD=[redacted]" in str(done.stdout)


@pytest.mark.parametrize(
    ("broken", "shown"),
    [
        ("raise RuntimeError('at import: ' + __import__('os').environ['HF_TOKEN'])", "at import"),
        ("raise ImportError('cannot load ' + __import__('os').environ['HF_TOKEN'])", "cannot load"),
        (f'password="{PASSWORD}" +', "SyntaxError"),
    ],
    ids=["raised", "import", "syntax"],
)
def test_an_error_of_collection_shows_none(
    run_pytest: Run, site: Path, mode: tuple[str, ...], broken: str, shown: str
) -> None:
    (site / "test_secret.py").write_text(broken)
    done = run_pytest("--hetgpu-matrix", "m.yaml", "--junitxml", "own.xml", "test_secret.py", *mode)
    assert done.ret != 0
    assert not (found := traces(seen(done, site))), "\n".join(map(str, found))
    assert shown in str(done.stdout)


def test_no_error_of_pytests_own_shows_one(run_pytest: Run, site: Path, mode: tuple[str, ...]) -> None:
    (site / "conftest.py").write_text(ITEM)
    (site / "test_secret.py").write_text(f'def test_x(nofix, password="{PASSWORD}"):\n    """\n{DOCTEST}    """\n')
    given = ("--junitxml", "own.xml", "--doctest-modules", "-rA")
    done = run_pytest("--hetgpu-matrix", "m.yaml", *given, "test_secret.py", "a.item", *mode)
    assert not (found := traces(seen(done, site))), "\n".join(map(str, found))
    for why in ("fixture 'nofix' not found", "Expected:", "my own words"):
        assert why in str(done.stdout)


def test_what_a_session_ends_with_shows_none(run_pytest: Run, site: Path, mode: tuple[str, ...]) -> None:
    (site / "test_secret.py").write_text(ENDING)
    given = ("--hetgpu-matrix", "m.yaml", "--junitxml", "own.xml", "test_secret.py")
    done = run_pytest(*given, *mode)
    assert not (found := traces(seen(done, site))), "\n".join(map(str, found))
    assert "stop [redacted]" in str(done.stdout)


def test_an_internal_error_shows_none(run_pytest: Run, site: Path, mode: tuple[str, ...]) -> None:
    (site / "conftest.py").write_text(
        "import os\ndef pytest_runtest_logfinish():\n    raise RuntimeError('inside ' + os.environ['HF_TOKEN'])\n"
    )
    done = run_pytest("--hetgpu-matrix", "m.yaml", "--junitxml", "own.xml", "test_secret.py", *mode)
    assert "inside" in f"{done.stdout}"
    assert traces({"terminal": f"{done.stdout}\n{done.stderr}".encode()}) == []


def test_a_mistake_in_a_matrix_shows_none(run_pytest: Run, site: Path) -> None:
    (site / "m.yaml").write_text("name: x\nhardware: {cpu: {platform: zebra7crossing}}\n")
    done = run_pytest("--hetgpu-matrix", "m.yaml")
    assert done.ret == 4
    assert traces({"terminal": f"{done.stdout}\n{done.stderr}".encode()}) == []


def test_reports_of_pytest_without_a_matrix_stay(run_pytest: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it():\n    raise RuntimeError('password=hunter2secret')")
    done = run_pytest("-p", "no:xdist")
    assert PASSWORD in str(done.stdout)
