"""The modules that `hetgpu explain` loads before it answers: loading all would double the time for a small log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GOOD = '$ mpirun -np 2 ./a.out\n@hetgpu:0021:09862b74:{"t":"done","rank":0}\nstep 1 residual 2.0\n'
KNOWN = "[n1:00741] PML ucx cannot be selected\n"
# What users' files need, reports, and plans; what importing takes as long as reading a small log.
HEAVY = {
    *("pydantic", "yaml", "pytest", "junitparser", "psutil", "packaging", "asyncio", "logging", "subprocess"),
    *("importlib.metadata", "pytest_hetgpu.model.job", "pytest_hetgpu.model.outcome", "pytest_hetgpu.config.matrix"),
}
EXPLAIN = """
import sys
from pytest_hetgpu.cli.main import main
code = main(["explain", "--json", sys.argv[1]])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""
PATTERNS = """
import re, sys
compiled, compile = [], re.compile
def spy(*given, **named):
    compiled.append(sys._getframe(1).f_globals["__name__"])
    return compile(*given, **named)
re.compile = spy
from pytest_hetgpu.cli.explain import command
from pytest_hetgpu.analysis.logs.parse import log_parsers
log_parsers()
print(*(name for name in compiled if name.startswith("pytest_hetgpu.extensions.signatures")))
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)


@pytest.mark.parametrize(("text", "told"), [(GOOD, '"outcome": "passed"'), (KNOWN, '"id": "openmpi-ucx-devices"')])
def test_it_loads_only_what_reading_a_log_needs(tmp_path: Path, text: str, told: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(text)
    done = run(EXPLAIN, str(log))
    assert told in done.stdout
    assert HEAVY & set(done.stderr.split()) == set(), (
        "import it where it is used (nouns of a log are in model/failure.py)"
    )


def test_patterns_of_parsers_wait_until_they_are_used() -> None:
    assert run(PATTERNS).stdout.split() == [], "use `lazy` (model/lazy_regex.py), not `re.compile`"


def test_a_process_of_one_command_looks_for_no_garbage_at_its_start_and_a_caller_keeps_its_own_ways() -> None:
    threshold = "print(gc.get_threshold()[0])"
    by_itself = (
        f"import gc, sys; sys.argv[1:] = ['--version']; from pytest_hetgpu.cli.main import main; main(); {threshold}"
    )
    called = f"import gc; from pytest_hetgpu.cli.main import main; main(['--version']); {threshold}"
    plain = run(f"import gc; {threshold}").stdout
    assert run(called).stdout.endswith(plain)
    assert int(run(by_itself).stdout.split()[-1]) > 10 * int(plain)
