"""A matrix of any bytes: scenarios that can be planned, or complaints. What made-up YAML may hold is in `matrix/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.errors import MatrixError
from tests.config.matrix.test_matrix_fuzz import BASES, ODD, RICH, mutated, outcome, planned
from tests.fuzz.fuzzing import bounded, cases, damaged, fuzz, told

WORDS = [word.encode("utf-8", "surrogatepass") for word in (*ODD, *RICH.split())]
NASTY = [
    b"x-a: &a [" + b"[" * 40,
    b"&a [*a]",
    b"x-a: &a {k: *a}",
    b"!!python/object/apply:os.system ['true']",
    b"{? {a: b} : c}",
    b"%YAML 1.1\n---\n",
    b"\xef\xbb\xbf",
    b"'$(id)'",
    b"`id`",
    b'"\\x1b[2J"',
    b'"\\u202e"',
    b"javascript:alert(1)",
    b"../../../etc/passwd",
    b"-oProxyCommand=id",
    b"${PATH}",
]


def check(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        scenarios = planned(path)
    except MatrixError as error:
        told(error)
        return
    outcome(path, data.decode("utf-8-sig"))
    assert [one.id for one in planned(path)] == [one.id for one in scenarios]


def test_bytes(tmp_path: Path) -> None:
    samples = [text.encode() for text in BASES.values()]
    fuzz(damaged(samples, [*WORDS, *NASTY]), lambda data: check(tmp_path / "m.yaml", data))


def test_changed_yaml(tmp_path: Path) -> None:
    fuzz(mutated(), lambda text: check(tmp_path / "m.yaml", text.encode("utf-8", "surrogatepass")), examples=100)


@pytest.mark.parametrize("case", cases("matrix"), ids=lambda path: path.name)
def test_what_was_found(tmp_path: Path, case: Path) -> None:
    with bounded():
        check(tmp_path / "m.yaml", case.read_bytes())
