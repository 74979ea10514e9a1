"""The commands that README.md and docs/ show work: in a folder with the files that a reader has by then.

A cell is only collected, not run. A cluster, a remote host and a removal are left to tests/test_document_commands.py.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.acceptance.conftest import MATRIX, stand_in
from tests.document_blocks import ROOT, Command, blocks, commands

LOG = ROOT / "tests" / "data" / "logs" / "openmpi5-ucx-guarded.log"
HOWS = "{good: {env: {BEHAVE: good}}, crash: {env: {BEHAVE: crash}}}"
#: Exit codes of `hetgpu` besides 0: something is worse, something may break jobs.
ALSO = {"compare": (1,), "doctor": (1,)}
#: Commands that write what another page's command has written before.
AGAIN = ("init", "merge")
SITES = ("lab", "desk", "cluster")


def can_run(command: Command) -> bool:
    """Return whether a command needs no cluster, no other host and no server, and removes and sends nothing."""
    words = command.argv[1:]
    if words[:1] == ("completion",):
        return importlib.util.find_spec("shtab") is not None
    if command.program == "hetgpu":
        reads_input = words == ("explain",)
        asks_hosts = words[0] == "doctor" and "--inventory" in words and "--list" not in words
        asks_server = any("://" in word for word in words)
        return words[0] != "clean" and "--send" not in words and not (asks_hosts or asks_server or reads_input)
    return command.program in ("pytest", "sqlite3")


RUN = {command.name: command for command in commands() if can_run(command)}


def example(page: str, first: str) -> str:
    """Return the YAML block of a page that begins in this way."""
    (text,) = (block.text for block in blocks() if block.place.startswith(page) and block.text.startswith(first))
    return text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the files of a reader, a stand-in for MPI, and finished runs of `aws.yaml`."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "reports").mkdir()
    for name in ("matrices", "containers", "examples", "tests", "reports/sample"):
        (folder / name).symlink_to(ROOT / name)
    matrix = MATRIX.replace("{HOWS}", HOWS)
    files = {
        **dict.fromkeys(("my.yaml", "m.yaml", "aws.yaml", "hetgpu.yaml"), matrix),
        "first.yaml": example("docs/tutorials/first-matrix.md", "name:"),
        "site.yaml": example("docs/how-to/known-failures.md", "- id:"),
        "my.hosts.yaml": example("docs/how-to/aws.md", "hardware:"),
        "rules.yaml": example("docs/how-to/adding-a-signature.md", "source:"),
        "hosts": "gpu1\n",
        "out.json": '{"cpu_ips": {"value": ["10.0.0.1"]}}',
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "logs").mkdir()
    for name in ("train.log", "slurm-4711.out", "failed.log", "logs/rank0.log"):
        shutil.copy(LOG, folder / name)
    (folder / "slurm-7.out.gz").write_bytes(gzip.compress(LOG.read_bytes()))
    shutil.make_archive(str(folder / "logs"), "xztar", folder, "logs")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in stand_in(tmp_path_factory.mktemp("standin")).items():
            patch.setenv(name, value)
        for _ in range(2):
            assert start(folder, "--hetgpu-matrix", "aws.yaml").returncode == 1
        for site in SITES:
            assert start(folder, "--hetgpu-matrix", "aws.yaml", "--hetgpu-reports", f"reports-{site}").returncode == 1
        with pytest.MonkeyPatch.context() as there:
            there.chdir(folder)
            assert hetgpu(["merge", *(f"{site}=reports-{site}/latest" for site in SITES), "-o", "merged"]) == 0
        # The tutorial reads the log of a cell that a real MPI has run.
        cell = folder / "reports/latest/scenarios/two-ranks-ucx-tcp-guarded_send"
        cell.mkdir()
        shutil.copy(LOG, cell / "output.log")
        yield folder


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, without plugins that only take time."""
    command = (sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:hypothesispytest", *arguments)
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


def found(folder: Path, pattern: str) -> list[str]:
    """Return the files that match a pattern of a shell."""
    return sorted(str(path) for path in folder.glob(pattern))


def hetgpu(arguments: list[str]) -> int:
    """Run a command of `hetgpu` in this process."""
    (script,) = entry_points(group="console_scripts", name="hetgpu")
    return int(script.load()(arguments))


@pytest.mark.parametrize("name", RUN)
def test_a_command_works(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = RUN[name]
    arguments = [one for word in command.argv[1:] for one in (found(place, word) if "*" in word else [word])]
    monkeypatch.chdir(place)
    if command.program == "pytest":
        more = () if "--hetgpu-plan" in arguments else ("--collect-only", "-q")
        done = start(place, *arguments, *more)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    elif command.program == "sqlite3":
        with closing(sqlite3.connect(place / arguments[0])) as database:
            database.execute(arguments[1])
    else:
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        code = hetgpu([*arguments, *(("--force",) if arguments[0] in AGAIN else ())])
        assert code in (0, *ALSO.get(arguments[0], ())), capsys.readouterr()


def test_what_the_tutorial_prints_is_what_the_plan_has(place: Path) -> None:
    done = start(place, "--hetgpu-matrix", "first.yaml", "--collect-only", "-q")
    page = (ROOT / "docs/tutorials/first-matrix.md").read_text(encoding="utf-8")
    cells = [line.partition("[")[2].rstrip("]") for line in done.stdout.splitlines() if "[" in line]
    assert len(cells) == 4
    assert [cell for cell in cells if cell not in page] == []
