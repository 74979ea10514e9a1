"""Terminal output: nothing that a terminal would obey, in any encoding, and the true number of ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.explain import Explanation
from pytest_hetgpu.cli.explain.format import as_json, as_text
from pytest_hetgpu.cli.main import main
from pytest_hetgpu.model.failure import KnownFailure, Signature
from pytest_hetgpu.model.verdict import Kind

OBEYED = "\x1b]0;x\x07\x9b2J\x85\u202e\u2066\u2069\u200e\u200f\u061c\x08\r"
LEFT = {*OBEYED} - {"]", "0", ";", "x", "2", "J"}


def hostile(**fields: object) -> Explanation:
    names = ("key", "primary_line", "signal", "detail", "library", "function", "entry_point")
    given: dict[str, object] = dict.fromkeys(names, f"a{OBEYED}b")
    signature = Signature(kind=Kind.CRASH, line=3, hosts=(f"n1{OBEYED}",), **(given | fields))  # type: ignore[arg-type]
    known = KnownFailure(
        f"id{OBEYED}",
        f"title{OBEYED}",
        f"cause{OBEYED}",
        f"fix{OBEYED}",
        {"env": {f"NAME{OBEYED}": f"value{OBEYED}"}},
        (f"https://example.org/{OBEYED}",),
        fixed_in=f"1.2{OBEYED}",
    )
    versions = {f"ucx{OBEYED}": f"1{OBEYED}"}
    return Explanation(Kind.CRASH, signature, (signature,), (known,), versions=versions, failed=(f"x{OBEYED}",))


def test_nothing_that_a_terminal_obeys_is_in_the_text() -> None:
    text = as_text(f"a{OBEYED}.log", hostile())
    assert not LEFT & {*text}
    assert "https://example.org/" in text
    assert not LEFT & {*as_text(f"a{OBEYED}.log", Explanation(Kind.PASSED))}


def test_a_line_stays_a_line() -> None:
    plain = as_text("a.log", hostile(entry_point=None, library="x"))
    assert len(as_text("a.log", hostile(entry_point=None, library="x\ny\u2028z")).split("\n")) == len(plain.split("\n"))


def test_json_escapes_it() -> None:
    assert json.loads(as_json(f"a{OBEYED}", hostile()))["function"] == f"a{OBEYED}b"
    assert as_json(f"a{OBEYED}", hostile()).isascii()


@pytest.mark.parametrize("arguments", [["NAME"], ["--knowledge", "NAME", os.devnull]])
def test_nor_is_it_in_an_error(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["explain", *(argument.replace("NAME", f"/no/a{OBEYED}b.log") for argument in arguments)]) == 4
    error = capsys.readouterr().err
    assert error.startswith("ERROR: /no/a")
    assert not LEFT & {*error}


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ((), "on n1"),
        ((3,), "rank 3, on n1"),
        ((0, 1), "ranks 0, 1, on n1"),
        ((0, 1, 2, 7), "ranks 0-2, 7, on n1"),
        (tuple(range(500)), "ranks 0-499, on n1"),
        (tuple(range(0, 100, 2)), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 38 more, on n1"),
        (
            (*range(0, 24, 2), *range(100, 600)),
            "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 500 more, on n1",
        ),
    ],
)
def test_ranks_in_words(ranks: tuple[int, ...], told: str) -> None:
    signature = Signature(Kind.ERROR, "x@y", "words", 1, ranks=ranks, hosts=("n1",))
    assert as_text("a.log", Explanation(Kind.ERROR, signature)).split("\n")[2] == f"  {told}"


@pytest.mark.parametrize(
    "terminal",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_a_terminal_that_knows_no_umlauts(tmp_path: Path, terminal: dict[str, str]) -> None:
    log = tmp_path / "a.log"
    log.write_text('Traceback (most recent call last):\n  File "a.py", line 1, in x\nValueError: nö\n', "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest_hetgpu.cli", "explain", str(log)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"} | terminal,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"ValueError: n\\xf6" in done.stdout
