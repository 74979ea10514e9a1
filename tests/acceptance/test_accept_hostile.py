"""A hostile matrix on the terminal: whatever it holds, nothing is obeyed there, and planning starts nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("stacks")

Write = Callable[..., Path]
Run = Callable[..., pytest.RunResult]

ESCAPES = '"\\e]0;owned\\a\\e[2J\\u202edetnalp \\u009b31m"'
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MORE = f"""\
x-all: &escapes {ESCAPES}
exclude:
  - {{where: {{how: exit3}}, reason: *escapes, issue: "https://example.org/\\e[2J"}}
expect:
  - {{where: {{how: crash}}, outcome: crash, signature: "*", reason: *escapes}}
"""


def obeyed(done: pytest.RunResult) -> list[str]:
    said = f"{done.stdout}\n{done.stderr}"
    return OBEYED.findall(said.replace("\r\n", "\n"))


def test_reasons_are_words(run_pytest: Run, matrix: Write, mode: tuple[str, ...]) -> None:
    matrix(["good", "crash", "exit3"], MORE)
    for more in ((), ("-v",), ("-q",)):
        done = run_pytest("--hetgpu-matrix", "demo.yaml", "-rA", "--color=no", *more, *mode)
        assert done.ret == 0, str(done.stdout)
        assert obeyed(done) == []


def test_a_plan_is_looked_at_before_anything_is_started(run_pytest: Run, matrix: Write, tmp_path: Path) -> None:
    path = matrix(["good", "exit3"], MORE.partition("expect:")[0])
    touched = tmp_path / "touched"
    hostile = (
        f"{{LD_PRELOAD: {touched}, A: {ESCAPES}, B: '$(touch {touched})', C: '`touch {touched}`; touch {touched}'}}"
    )
    path.write_text(path.read_text().replace("{BEHAVE: good}", hostile))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-plan", "--color=no")
    assert done.ret == 0
    assert obeyed(done) == []
    assert not touched.exists()
    done.stdout.fnmatch_lines([f"*'B=$(touch {touched})'*"])
    ran = run_pytest("--hetgpu-matrix", "demo.yaml", "--color=no")
    assert ran.ret in (0, 1)
    assert obeyed(ran) == []
    assert not touched.exists()


@pytest.mark.parametrize(
    "text", [f"{ESCAPES}: 1", f"name: {ESCAPES}", f"axes: {{placement: {ESCAPES}}}", "a: '\x1b[2J'"]
)
def test_complaints_are_words(run_pytest: Run, pytester: pytest.Pytester, text: str) -> None:
    (pytester.path / "m.yaml").write_text(text)
    done = run_pytest("--hetgpu-matrix", "m.yaml", "--color=no")
    assert done.ret == 4
    assert obeyed(done) == []


FORGED = '"::error file=a.py::x\\r::add-mask::y ##vso[task.complete]z ##[error]w"'


def test_reasons_are_no_commands_to_a_ci_server(run_pytest: Run, matrix: Write, mode: tuple[str, ...]) -> None:
    matrix(["good", "crash", "exit3"], MORE.replace(ESCAPES, FORGED))
    for more in ((), ("-v",), ("--hetgpu-plan",)):
        done = run_pytest("--hetgpu-matrix", "demo.yaml", "-rA", "--color=no", *more, *mode)
        assert done.ret == 0, str(done.stdout)
        for text in (str(done.stdout), str(done.stderr)):
            assert not re.search(r"(?m)^\s*::|##\[|##vso\[", text), text
