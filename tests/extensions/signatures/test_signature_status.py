"""Exit statuses as scripts echo them."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.signatures.shell_status import ShellStatus


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("mpiexec returned 9", "error exit@9"),
        ("exit status 255", "error exit@255"),
        ("rc 3", "error exit@3"),
        ("rc=3", "error exit@3"),
        ("job script: return code 137", "crash SIGKILL"),
        ("+ exit code: 139", "crash SIGSEGV"),
        ("Exit status: 124", "timeout time-limit@timeout"),
        ("EXIT=77 ", "error exit@77"),
        ("exit=77", "error exit@77"),
        ("mpirun: 124", "timeout time-limit@timeout"),
        ("mpiexec: 0", ""),
        ("mpirun: 3 processes", ""),
        ("exit status 0", ""),
        ("rc=0", ""),
        ("search returned 5 results", ""),
        ("src 3", ""),
        ("the solver returned 3 after 12 iterations", ""),
    ],
)
def test_what_a_script_echoes(text: str, read_as: str) -> None:
    parser = ShellStatus()
    parser.feed(parse_line(text, 4))
    found = [f"{match.signature.kind.value} {match.signature.key}" for match in parser.finish()]
    assert found == [read_as] * bool(read_as)
    assert not any(match.fatal for match in parser.finish())
