"""`hetgpu completion`: the script completes commands, options and files in a real shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hetgpu.cli.completion import SHELLS
from pytest_hetgpu.cli.main import main

#: Completes the words after `--`; the last one is being typed.
COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p hetgpu | grep -o -- '-F [^ ]*' | cut -d' ' -f2)
"$function" hetgpu "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, as the program prints it."""
    pytest.importorskip("shtab")
    path = tmp_path_factory.mktemp("completion") / "hetgpu.bash"
    command = (sys.executable, "-m", "pytest_hetgpu.cli", "completion", "bash")
    path.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return path


def completed(script: Path, *words: str, folder: Path | None = None) -> list[str]:
    """Return the words that bash offers."""
    bash = shutil.which("bash") or pytest.skip("no bash here")
    command = (bash, "--noprofile", "--norc", "-c", COMPLETE, "complete", str(script), "hetgpu", *words)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_a_command(script: Path) -> None:
    assert completed(script, "exp") == ["explain"]
    assert {"explain", "compare", "report", "completion"} <= set(completed(script, ""))


def test_bash_completes_an_option(script: Path) -> None:
    assert completed(script, "compare", "--to") == ["--tolerance"]
    assert completed(script, "schema", "sig") == ["signatures"]


def test_bash_completes_files_and_folders(script: Path, tmp_path: Path) -> None:
    (tmp_path / "slurm-1.out").touch()
    (tmp_path / "slurm").mkdir()
    assert sorted(completed(script, "explain", "slu", folder=tmp_path)) == ["slurm", "slurm-1.out"]
    assert completed(script, "report", "slu", folder=tmp_path) == ["slurm"]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_with_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert [name for name in ("explain", "tolerance", "anonymise", "boundary") if name not in text] == []
    program = shutil.which(shell)
    if program:
        subprocess.run((program, "-n"), input=text, text=True, check=True)


def test_without_shtab_the_message_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 4
    assert "pip install 'pytest-hetgpu[completion]'" in capsys.readouterr().err
    assert main(["completion", "tcsh"]) == 4


def test_no_other_command_loads_it() -> None:
    program = "import sys; from pytest_hetgpu.cli.main import main; main(['schema']); print('shtab' in sys.modules)"
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
