"""What noise cannot move of the plugin's cost: modules, files, threads, processes, instructions. The page has the rest.

Floors are what is needed today, with little room. Lower a floor with the cost. Raise none without a reason that stands
beside it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.bench import matrix, plain_tests, stand_in
from benchmarks.figures import digest, page, recorded

ROOT = Path(__file__).parent.parent
COUNTER = '''
"""Counts what a process does between its start and its end, and what it has imported."""
import atexit, collections, json, os, sys, threading

counts = collections.Counter()
WRITES = os.O_WRONLY | os.O_RDWR

def hook(event, given):
    if event == "open" and isinstance(given[0], str) and isinstance(given[2], int) and given[2] & WRITES:
        counts["written"] += given[0] != os.devnull
    elif event == "os.mkdir":
        counts["folders"] += 1
    elif event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        # From Python 3.13 on subprocess calls posix_spawn itself.
        caller = sys._getframe(1).f_code.co_filename
        counts["processes"] += event == "subprocess.Popen" or not caller.endswith("/subprocess.py")

def counting(place, name, what):
    real = getattr(place, name)
    def count(*given):
        counts[what] += 1
        return real(*given)
    setattr(place, name, count)

counting(os, "fsync", "synced")
counting(os, "fdatasync", "synced")
counting(threading.Thread, "start", "threads")
sys.addaudithook(hook)

@atexit.register
def told():
    with open(os.environ["COUNTED"], "w") as file:
        json.dump({"counts": counts, "modules": sorted(sys.modules)}, file)
'''


class Counted(NamedTuple):
    """What one process of pytest did."""

    counts: Mapping[str, int]
    modules: frozenset[str]

    @property
    def ours(self) -> int:
        """How many of our modules it has imported."""
        return sum(name.partition(".")[0] == "pytest_hetgpu" for name in self.modules)


def counted(folder: Path, *given: str, **env: str) -> Counted:
    """Run pytest in a process of its own, with no plugin but ours."""
    (folder / "cost_counter.py").write_text(COUNTER)
    out = folder / "counted.json"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ |= {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "COUNTED": str(out), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environ |= {"HETGPU_STACKS": str(folder / "stacks"), "HETGPU_LEASES": str(folder / "leases"), **env}
    environ |= {"PYTHONDONTWRITEBYTECODE": "1"}  # else a first run writes a file for each module
    command = (sys.executable, "-m", "pytest", "-p", "cost_counter", "-p", "no:cacheprovider")
    plugin = () if "no:hetgpu" in given else ("-p", "pytest_hetgpu.plugin")
    done = subprocess.run(
        (*command, *plugin, *given), cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    return Counted(found["counts"], frozenset(found["modules"]))


def of_cells(folder: Path, cells: int) -> Counted:
    """A run of so many cells, each of which a stand-in for mpirun passes at once."""
    if not (folder / "stacks").exists():
        stand_in(folder)
    return counted(folder, "--hetgpu-matrix", str(matrix(folder, cells)), "--hetgpu-reports", str(folder / "reports"))


def test_without_a_matrix_next_to_nothing_is_imported(tmp_path: Path) -> None:
    # pytest 9 answers `--version` before it loads plugins.
    with_it, without = counted(tmp_path, "--markers"), counted(tmp_path, "--markers", "-p", "no:hetgpu")
    assert with_it.ours <= 12
    assert len(with_it.modules - without.modules) <= 14


def test_listing_imports_what_reading_a_matrix_needs(tmp_path: Path) -> None:
    listed = counted(tmp_path, "--collect-only", "-q", "--hetgpu-matrix", str(matrix(tmp_path, 1)))
    assert listed.ours <= 163
    unwanted = {"jinja2", "junitparser", "sqlite3", "plotly", "psutil", "testinfra", "docker", "rich", "lxml", "ctypes"}
    assert not unwanted & listed.modules


def test_one_cell_imports_starts_and_writes_what_it_needs(tmp_path: Path) -> None:
    ran = of_cells(tmp_path, 1)
    assert ran.ours <= 386
    assert not {"docker", "plotly", "rich"} & ran.modules
    # The look at the node, the watchdog, and the cell's command.
    assert ran.counts["processes"] <= 3
    assert ran.counts["threads"] <= 5
    assert ran.counts["written"] <= 26
    assert ran.counts["synced"] <= 5


def test_a_further_cell_starts_its_command_alone_and_writes_few_files(tmp_path: Path) -> None:
    # Each is the first run of its history: a later one reads the earlier.
    (tmp_path / "more").mkdir()
    one, more = of_cells(tmp_path, 1), of_cells(tmp_path / "more", 11)
    per_cell = {name: (count - one.counts.get(name, 0)) / 10 for name, count in more.counts.items()}
    # Its output, job.json before and after, the two files of its host's lease, whose its temporary folder is, and the
    # variables of its ranks, which no command line may show.
    assert per_cell["written"] <= 7
    assert per_cell["folders"] <= 3
    assert per_cell["processes"] <= 1
    assert per_cell["synced"] <= 1
    assert per_cell["threads"] < 0.2


def instructions(folder: Path, *command: str) -> int:
    """User-mode instructions of a command; a skip where there are no such counters, or another Python than measured."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("counted with Python 3.11")
    out = folder / "counters"
    environ = os.environ | {"PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    counting = ("perf", "stat", "-x,", "-o", str(out), "-e", "instructions:u", sys.executable, *command)
    for _ in range(2):  # the first run may write bytecode
        try:
            subprocess.run(counting, cwd=folder, env=environ, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no counters of instructions: {error}")
    found = re.search(r"^(\d+),", out.read_text(), re.MULTILINE)
    if not found:
        pytest.skip("this machine does not count instructions")
    return int(found[1])


def test_explaining_a_small_log_takes_few_instructions(tmp_path: Path) -> None:
    program = "import sys; from pytest_hetgpu.cli.main import main; sys.exit(main())"
    log = ROOT / "tests" / "data" / "logs" / "openmpi5-ucx-guarded.log"
    assert instructions(tmp_path, "-c", program, "explain", str(log)) <= 850e6


def test_listing_one_cell_takes_few_instructions(tmp_path: Path) -> None:
    listing = ("-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q")
    ours = instructions(tmp_path, *listing, "-p", "pytest_hetgpu.plugin", "--hetgpu-matrix", str(matrix(tmp_path, 1)))
    plain = instructions(tmp_path, *listing, "-p", "no:hetgpu", str(plain_tests(tmp_path, 1, ["true"])))
    assert ours - plain <= 1.45e9


def test_a_passed_cell_leaves_two_files(tmp_path: Path) -> None:
    of_cells(tmp_path, 3)
    (run,) = (path for path in (tmp_path / "reports").iterdir() if re.match(r"\d{8}-", path.name))
    assert sum(path.is_file() for path in (run / "scenarios").rglob("*")) == 2 * 3


def test_the_page_has_the_figures_of_these_benchmarks() -> None:
    text = page().read_text(encoding="utf-8")
    found = re.search(r"`benchmarks/` is `([0-9a-f]{16})`", text)
    assert found, "run benchmarks/bench.py --write"
    assert found[1] == digest(), "the benchmarks have changed since: run benchmarks/bench.py --write"
    assert recorded(text)
