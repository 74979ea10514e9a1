"""A log of any bytes: one answer, the same each time, in words that a terminal prints and does not obey."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.analysis.logs.parse import log_parsers
from pytest_hetgpu.cli.explain.format import as_json, as_text
from pytest_hetgpu.cli.explain.log_input import open_logs
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.verdict import Kind
from tests.fuzz.fuzzing import bounded, cases, damaged, fuzz, harmless

DATA = Path(__file__).parents[1] / "data"
SAMPLES = [path.read_bytes() for path in sorted((DATA / "logs").glob("*.log"))]
TRIGGERS = sorted({trigger for parser in log_parsers() for trigger in parser.triggers})
SHAPES = [
    *(
        b"[1,0]<stderr>:",
        b"[n1:00741] ",
        b"0: ",
        b"(Worker pid=1, ip=10.0.0.1) ",
        b"[rank0]: ",
        b"2026-01-01T00:00:00 ",
    ),
    *(b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\x28\xb5\x2f\xfd", b"\xff\xfe\0\0", b"[" * 300, b"(" * 300, b"\\" * 300),
    *(b" at address 0x0", b"0x7f0000000000", b"[0x1]", b"() ", b"::" * 200, b"<" * 300, b" " * 3000, b"a/" * 2000),
]


def check(log: Path, data: bytes) -> None:
    log.write_bytes(data)
    for _, path in open_logs(str(log)):
        if isinstance(path, UsageError):
            harmless(str(path))
        else:
            check_answer(path)


def check_answer(path: Path) -> None:
    known = known_failures()
    found = explain(path, known)
    again = explain(path, known)
    assert found.failed == ()
    assert as_json("a.log", again) == as_json("a.log", found)
    told = json.loads(as_json("a.log", found))
    assert Kind(told["outcome"])
    assert (told["key"] is None) == (told["outcome"] in ("passed", "unknown", "skipped"))
    harmless(as_text("a.log", found))
    harmless(as_json("a.log", found))
    harmless(told["key"] or "")


def test_logs(tmp_path: Path) -> None:
    fuzz(damaged(SAMPLES, [*TRIGGERS, *SHAPES]), lambda data: check(tmp_path / "a.log", data), examples=80)


@pytest.mark.parametrize("case", cases("explain"), ids=lambda path: path.name)
def test_what_was_found(tmp_path: Path, case: Path) -> None:
    with bounded():
        check(tmp_path / "a.log", case.read_bytes())
