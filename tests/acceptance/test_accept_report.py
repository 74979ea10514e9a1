"""`hetgpu report RUN`: stored logs judged again, with what the run knew; and the command that runs a cell again."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.store import history

pytestmark = pytest.mark.usefixtures("stacks")

Write = Callable[..., Path]
Latest = Callable[[], Path]
Run = Callable[..., pytest.RunResult]

EXPECT = "expect:\n  - {where: {how: crash}, known: my-fault}\n"
MINE = """\
- id: my-fault
  title: the stand-in crashes
  match: {signature: SIGSEGV@libuct.so!*}
  cause: it was told to
  links: [https://example.org/4711]
"""
KNOWN = "known: https://example.org/4711"


@pytest.fixture
def report(pytester: pytest.Pytester, latest: Latest) -> Run:
    """Runs `hetgpu report` on the newest run, from another folder than the run's own."""
    elsewhere = pytester.mkdir("elsewhere")

    def run(*arguments: str) -> pytest.RunResult:
        program = (
            f"import os, sys; os.chdir({str(elsewhere)!r}); from pytest_hetgpu.cli.main import main; sys.exit(main())"
        )
        return pytester.run(sys.executable, "-c", program, "report", str(latest()), *arguments)

    return run


@pytest.fixture
def mine(pytester: pytest.Pytester) -> Path:
    path = pytester.path / "mine.yaml"
    path.write_text(MINE)
    return path


def test_a_run_is_judged_again_with_what_it_knew(
    run_pytest: Run, matrix: Write, latest: Latest, report: Run, mine: Path, mode: tuple[str, ...]
) -> None:
    matrix(["crash"], EXPECT)
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-knowledge", mine.name, *mode).ret == 0
    done = report()
    done.stdout.fnmatch_lines(["0 verdicts changed; reports rebuilt in *"])
    assert KNOWN in (latest() / "junit.xml").read_text()


@pytest.mark.parametrize("source", ["variable", "ini"])
def test_what_it_knew_may_have_been_told_elsewhere(
    run_pytest: Run,
    matrix: Write,
    report: Run,
    mine: Path,
    source: str,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix(["crash"], EXPECT)
    if source == "ini":
        pytester.makeini(f"[pytest]\nhetgpu_knowledge = {mine.name}\n")
    else:
        monkeypatch.setenv("HETGPU_KNOWLEDGE", mine.name)
    assert run_pytest("--hetgpu-matrix", "demo.yaml").ret == 0
    monkeypatch.delenv("HETGPU_KNOWLEDGE", raising=False)
    report().stdout.fnmatch_lines(["0 verdicts changed; *"])


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (Path.unlink, "ERROR: *: its verdicts rest on the known failures in *mine.yaml, which is no file now; *"),
        (lambda path: path.write_text("- id: my-fault"), "ERROR: *mine.yaml:1: my-fault lacks the key 'title'"),
    ],
)
def test_without_what_it_knew_no_verdict_is_touched(
    run_pytest: Run, matrix: Write, latest: Latest, report: Run, mine: Path, spoil: Callable[[Path], None], told: str
) -> None:
    matrix(["crash"], EXPECT)
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-knowledge", mine.name)
    kept = shutil.copy(mine, mine.with_name("moved.yaml"))
    spoil(mine)
    before = sorted((path, path.read_bytes()) for path in latest().rglob("*") if path.is_file())
    done = report()
    assert done.ret == 4
    done.stderr.fnmatch_lines([told])
    assert before == sorted((path, path.read_bytes()) for path in latest().rglob("*") if path.is_file())
    done = report("--knowledge", str(kept))
    assert done.ret == 0
    done.stdout.fnmatch_lines(["0 verdicts changed; *"])


def test_other_knowledge_gives_other_verdicts(
    run_pytest: Run, matrix: Write, latest: Latest, report: Run, mine: Path
) -> None:
    matrix(["crash"], EXPECT)
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-knowledge", mine.name)
    none = mine.with_name("none.yaml")
    none.write_text("[]\n")
    runs = mine.with_name("mine.sqlite")
    changed = (
        "two-ob1-tcp-allreduce-crash: was crash (known), is crash (changed): expected my-fault, got crash SIGSEGV@*"
    )
    done = report("--knowledge", str(none), "--history", str(runs))
    done.stdout.fnmatch_lines([changed, "1 verdicts changed; *", f"put into {runs}"])
    assert [cell.verdict for cell in history.load_run(runs, latest().name).cells] == [Verdict.CHANGED]


RULE = """\
rules:
  openmpi-errors-btl-tcp-mine:
    trigger: 'failed: No route'
    kind: network_failure
    key: no-route@rack7
    example: 'connect() to 10.0.0.2:1024 failed: No route to host (113)'
"""
EXPECT_RULE = "expect:\n  - {where: {how: network}, outcome: network_failure, signature: no-route@rack7}\n"


def test_own_rules_give_keys_to_workers_and_when_judged_again(
    run_pytest: Run, matrix: Write, report: Run, mine: Path, mode: tuple[str, ...]
) -> None:
    mine.write_text(RULE)
    matrix(["network"], EXPECT_RULE)
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-signatures", mine.name, *mode).ret == 0
    report().stdout.fnmatch_lines(["0 verdicts changed; *"])
    resumed = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume=latest")
    assert resumed.ret == 4
    resumed.stderr.fnmatch_lines(["*signatures mine.yaml: was sha256 *, is not there"])
    (none := mine.with_name("none.yaml")).write_text("rules: {}\n")
    changed = report("--signatures", str(none))
    changed.stdout.fnmatch_lines(["*expected network_failure no-route@rack7, got *", "1 verdicts changed; *"])


def again(text: str) -> list[str]:
    """The first command that runs a cell again, as words without the program; from a terminal, Markdown or XML."""
    (line, *_) = (line for line in text.splitlines() if "again:" in line)
    _, _, words = line.partition("again:")
    return shlex.split(words.partition("<")[0].strip().strip("`"))[1:]


def test_a_cell_can_be_run_again_as_it_was(
    run_pytest: Run,
    matrix: Write,
    latest: Latest,
    report: Run,
    mine: Path,
    mode: tuple[str, ...],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix(["good", "exit3"], EXPECT.replace("crash", "exit3"))
    pytester.path.joinpath("hosts.yaml").write_text("hardware: {cpu: [localhost]}\n")
    monkeypatch.setenv("HETGPU_TIMEOUT", "7.5")
    monkeypatch.setenv("HETGPU_PREFLIGHT", "warn")
    done = run_pytest(
        *("--hetgpu-matrix", "demo.yaml", "--hetgpu-inventory", "hosts.yaml", "--hetgpu-preflight=off"),
        *("--hetgpu-knowledge", mine.name, "--hetgpu-history", "mine.sqlite", *mode),
    )
    told = again(done.stdout.str())
    wanted = "--hetgpu-matrix demo.yaml --hetgpu-inventory hosts.yaml --hetgpu-knowledge mine.yaml --hetgpu-timeout 7.5"
    assert told == [*wanted.split(), "--hetgpu-preflight", "off", "--hetgpu-cell", "two-ob1-tcp-allreduce-exit3"]
    for name in ("summary.md", "junit.xml"):
        assert again((latest() / name).read_text()) == told
    assert report().ret == 0
    for name in ("summary.md", "junit.xml"):
        assert again((latest() / name).read_text()) == told
    monkeypatch.delenv("HETGPU_TIMEOUT")
    done = run_pytest(*told)
    done.assert_outcomes(failed=1)
    assert again(done.stdout.str()) == told


def test_a_scenario_of_ones_own_is_run_again(
    run_pytest: Run, matrix: Write, pytester: pytest.Pytester, mode: tuple[str, ...]
) -> None:
    matrix(["good", "exit3"])
    text = "def test_mine(run):\n    run()\n\ndef test_another():\n    assert False\n"
    pytester.path.joinpath("test_mine.py").write_text(text)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode, "test_mine.py::test_mine")
    told = again(done.stdout.str())
    assert told[:5] == ["--hetgpu-matrix", "demo.yaml", "test_mine.py", "-m", "hetgpu"]
    run_pytest(*told).assert_outcomes(failed=1, deselected=1)


def test_of_two_matrices_a_cell_is_run_again_by_its_own(
    run_pytest: Run, matrix: Write, latest: Latest, report: Run
) -> None:
    matrix(["good"])
    matrix(["exit3"], name="other")
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-matrix", "other.yaml")
    told = again((latest() / "summary.md").read_text())
    assert told[:2] == ["--hetgpu-matrix", "other.yaml"]
    assert told[-2:] == ["--hetgpu-cell", "two-ob1-tcp-allreduce-exit3"]
    report()
    assert again((latest() / "summary.md").read_text()) == told


def named(run: Path) -> list[str]:
    """The reports of a run that name this machine."""
    own = os.uname().nodename
    page = (run / "index.html").read_text()
    texts = {name: (run / name).read_text() for name in ("junit.xml", "summary.md")}
    texts["index.html"] = page[: page.index('id="charts"')]
    return [name for name, text in texts.items() if re.search(rf"(?<![\w.-]){re.escape(own)}(?![\w-])", text)]


def test_a_run_may_be_without_names_from_the_start_or_afterwards(
    run_pytest: Run, matrix: Write, latest: Latest, report: Run, mode: tuple[str, ...]
) -> None:
    matrix(["good", "crash"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", *mode).ret == 1
    assert named(latest()) == ["junit.xml", "summary.md", "index.html"]
    assert report("--anonymise").ret == 0
    assert named(latest()) == []
    assert report().ret == 0
    assert named(latest()) == []
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-anonymise", *mode).ret == 1
    assert named(latest()) == []
    assert "host-A" in (latest() / "summary.md").read_text()
