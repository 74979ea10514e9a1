"""The reader of a file with variables, which becomes the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hetgpu.extensions.package_data import REMOTE

TELL = (sys.executable, "-c", "import os; print(os.getpid(), [os.environb.get(b'A'), os.environb.get(b'B')])")


def run(*arguments: str, **env: str) -> tuple[int, str, str]:
    words = (sys.executable, "-I", "-S", str(REMOTE / "with_variables.py"), *arguments)
    with subprocess.Popen(
        words, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        out, err = started.communicate(timeout=60)
        return started.returncode, out.replace(str(started.pid), "PID"), err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "variables-0"
    made.write_text(json.dumps({"A": "a=b 'c'\n\udcff é", "B": "own"}))
    return made


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_it_becomes_the_program_with_these_variables(file: Path, locale: str) -> None:
    code, out, err = run(str(file), *TELL, B="inherited", LC_ALL=locale)
    assert (code, out, err) == (0, "PID [b\"a=b 'c'\\n\\xff \\xc3\\xa9\", b'own']\n", "")


def test_a_relative_path_is_below_tmpdir(file: Path) -> None:
    assert run("variables-0", "/bin/sh", "-c", 'echo "$B"', TMPDIR=str(file.parent)) == (0, "own\n", "")


def test_its_exit_codes_are_those_of_env(file: Path, tmp_path: Path) -> None:
    code, _, err = run(str(file), "no-such-program")
    assert (code, err) == (127, "with_variables.py: 'no-such-program': No such file or directory\n")
    (tmp_path / "data").touch(0o644)
    assert run(str(file), str(tmp_path / "data"))[0] == 126


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    code, _, err = run(str(tmp_path / "none"), "true")
    assert code == 1
    assert "cannot read the variables of this rank" in err
    assert str(tmp_path / "none") in err
