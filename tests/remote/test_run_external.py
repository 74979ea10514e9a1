"""The program that starts external ones, run for real: its records before, and the end of the program."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.output import OutputLines, StartedProgram
from pytest_hetgpu.analysis.logs.records import RecordReader, Records
from pytest_hetgpu.model.records import RankExit

PROGRAM = Path(__file__).resolve().parents[2] / "pytest_hetgpu" / "remote" / "run_external.py"


def started(*arguments: str, **env: str) -> subprocess.Popen[bytes]:
    argv = (sys.executable, str(PROGRAM), *arguments)
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **env})


class Ended:
    """The results of a finished program."""

    def __init__(self, running: subprocess.Popen[bytes], folder: Path) -> None:
        self.pid = running.pid
        output, _ = running.communicate(timeout=60)
        self.code = running.returncode
        path = folder / f"{self.pid}.log"
        path.write_bytes(output)
        reader = RecordReader()
        for line in output.splitlines():
            reader.feed(line)
        self.records: Records = reader.finish()
        read = OutputLines(path)
        # The report of the end begins with a newline of its own.
        self.lines = [line.text for line in read.lines() if line.text]
        self.starts: dict[int, StartedProgram] = read.starts


def run(folder: Path, *arguments: str, **env: str) -> Ended:
    return Ended(started(*arguments, **env), folder)


def script(folder: Path, name: str, body: str, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(body)
    path.chmod(mode)
    return path


def test_it_is_written_for_the_pythons_of_images() -> None:
    ast.parse(PROGRAM.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_the_rank_says_who_it_is_with_the_programs_process(tmp_path: Path) -> None:
    ended = run(tmp_path, "--", "sh", "-c", "echo $$", "x", OMPI_COMM_WORLD_RANK="3", OMPI_COMM_WORLD_SIZE="4")
    hello = ended.records.hellos[3]
    assert (hello.size, hello.library, hello.libmpi) == (4, "", "")
    assert ended.lines == [str(hello.pid)]
    assert ended.starts[3].path.endswith("/sh")
    assert (ended.code, ended.records.corrupt) == (0, 0)


@pytest.mark.parametrize(
    ("env", "rank", "size"),
    [
        ({}, 0, 1),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1, 2),
        ({"PMIX_RANK": "1", "SLURM_NTASKS": "8"}, 1, 8),
        ({"RANK": "2", "WORLD_SIZE": "3"}, 2, 3),
        ({"RANK": "x", "WORLD_SIZE": ""}, 0, 1),
    ],
)
def test_whatever_launcher_it_is(tmp_path: Path, env: dict[str, str], rank: int, size: int) -> None:
    assert run(tmp_path, "--", "true", **env).records.hellos[rank].size == size


def test_a_program_that_is_nowhere(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    ended = run(tmp_path, "--folder", "/no*/bin", "--", "osu_nothing", PATH=str(tmp_path / "bin"))
    start = ended.starts[0]
    assert (ended.code, start.name, start.path, ended.lines) == (127, "osu_nothing", "", [])
    assert start.looked[:3] == ("/no*/bin", str(Path(sys.executable).parent), str(tmp_path / "bin"))
    assert set(ended.records.hellos) == {0}
    absolute = run(tmp_path, "--", "/no/such/program")
    assert (absolute.code, absolute.starts[0].looked) == (127, ("/no/such/program",))


def test_much_that_was_looked_through_is_still_a_record(tmp_path: Path) -> None:
    path = os.pathsep.join(f"/{'long' * 60}/{index}" for index in range(300))
    ended = run(tmp_path, "--", "osu_nothing", PATH=path)
    assert (ended.code, ended.records.corrupt) == (127, 0)
    assert len(ended.starts[0].looked) == 20


def test_folders_come_before_path_and_may_be_globs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        script(tmp_path / name, "prog", f"#!/bin/sh\necho {name} $0\n")
    script(tmp_path / "c", "prog", "no program", mode=0o644)
    ended = run(tmp_path, "--folder", f"{tmp_path}/[cb]", "--", "prog", PATH=f"{tmp_path}/a:{os.environ['PATH']}")
    assert ended.lines == [f"b {tmp_path}/b/prog"]
    # What PATH finds is called as a shell would call it.
    assert run(tmp_path, "--", "prog", PATH=f"{tmp_path}/a:{os.environ['PATH']}").lines == [f"a {tmp_path}/a/prog"]


def test_what_cannot_be_executed_is_told(tmp_path: Path) -> None:
    script(tmp_path / "a", "prog", "\x7fELF no program")
    ended = run(tmp_path, "--folder", f"{tmp_path}/a", "--", "prog")
    assert (ended.code, ended.lines) == (126, [f"cannot start {tmp_path}/a/prog: Exec format error"])


def test_how_it_ends_is_the_programs(tmp_path: Path) -> None:
    assert run(tmp_path, "--", "sh", "-c", "exit 7").code == 7
    assert run(tmp_path, "--", "sh", "-c", "kill -SEGV $$").code == -11
    assert run(tmp_path, "--", "sh", "-c", "kill -KILL $$").code == -9


@pytest.mark.parametrize(
    ("body", "done", "exits"),
    [
        ("exit 0", {3}, ()),
        ("printf 'no newline'", {3}, ()),
        ("exit 7", set(), (RankExit(3, code=7),)),
        ("kill -SEGV $$", set(), (RankExit(3, signal=signal.SIGSEGV),)),
        ("kill -KILL $$", set(), (RankExit(3, signal=signal.SIGKILL),)),
        ("kill -TERM $$", set(), ()),
        ("exec /no/such/program", set(), (RankExit(3, code=127),)),
    ],
)
def test_the_rank_reports_how_its_program_ended(
    tmp_path: Path, body: str, done: set[int], exits: tuple[RankExit, ...]
) -> None:
    ended = run(tmp_path, "--", "sh", "-c", body, PMI_RANK="3", PMI_SIZE="4")
    assert (set(ended.records.done), ended.records.exits, ended.records.corrupt) == (done, exits, 0)
    assert ended.starts[3].exits
    assert "no newline" in ended.lines or "printf" not in body


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_program_which_decides_what_it_means(tmp_path: Path, number: signal.Signals) -> None:
    body = f"trap 'echo caught; exit 5' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    running = started("--", "sh", "-c", body)
    assert running.stdout
    before = b""
    while b"ready" not in before:
        before += running.stdout.readline()
    running.send_signal(number)
    ended = Ended(running, tmp_path)
    assert (ended.code, ended.lines, ended.records.exits) == (5, ["caught"], (RankExit(0, code=5),))


def test_the_program_ends_with_its_rank(tmp_path: Path) -> None:
    running = started("--", "sleep", "60")
    assert running.stdout
    running.stdout.readline()
    running.kill()
    # The pipe has an end when the last process that writes to it is gone.
    assert Ended(running, tmp_path).code == -signal.SIGKILL


def test_each_rank_its_own(tmp_path: Path) -> None:
    both = ("--", "echo", "first", ":::", "echo", "others", "{x}")
    said = [run(tmp_path, *both, PMI_RANK=str(rank), PMI_SIZE="3").lines for rank in range(3)]
    assert said == [["first"], ["others {x}"], ["others {x}"]]


SERVER = """\
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    connection, _ = server.accept()
    print("served", connection.recv(5).decode(), flush=True)
"""
CLIENT = """\
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1]))).sendall(b"hello")
"""


def free_port() -> int:
    """Return a free port whose neighbour is free as well."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port: int = one.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


@pytest.mark.parametrize("first", [0, 1])
def test_a_client_starts_when_its_server_listens_and_is_its_first_connection(tmp_path: Path, first: int) -> None:
    port = str(free_port())
    command = (
        *("--server", f"127.0.0.1:{port}", "--", sys.executable, "-c", SERVER, port),
        *(":::", sys.executable, "-c", CLIENT, port),
    )
    ranks = {rank: started(*command, PMI_RANK=str(rank), PMI_SIZE="2") for rank in (first, 1 - first)}
    ended = {rank: Ended(running, tmp_path) for rank, running in ranks.items()}
    assert {rank: one.code for rank, one in ended.items()} == {0: 0, 1: 0}
    assert ended[0].lines == ["served hello"]


def test_scripts_and_damaged_programs_are_linked_with_nothing(tmp_path: Path) -> None:
    for name, body in {"a": b"#!/bin/sh\n", "b": b"\x7fELF\x02\x01", "c": b"\x7fELF\x02\x01" + b"\xff" * 200}.items():
        (tmp_path / name).write_bytes(body)
        (tmp_path / name).chmod(0o755)
        ended = run(tmp_path, "--", str(tmp_path / name))
        assert ended.records.hellos[0].library == ""


@pytest.mark.real
def test_the_mpi_that_a_program_is_linked_with(tmp_path: Path, stack_prefix: Path) -> None:
    """Use any program of the stack that is linked with its libmpi: here one of ours."""
    library = next((stack_prefix / "lib").glob("libmpi.so.*"))
    (tmp_path / "main.c").write_text(
        "int MPI_Initialized(int *flag); int main(void) { int f; return MPI_Initialized(&f); }"
    )
    try:
        flags = (str(library), f"-Wl,-rpath,{stack_prefix}/lib", "-Wl,--allow-shlib-undefined")
        subprocess.run(("gcc", "main.c", "-o", "main", *flags), cwd=tmp_path, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no gcc here")
    hello = run(tmp_path, "--", str(tmp_path / "main")).records.hellos[0]
    assert hello.library.startswith("Open MPI v5.0.11")
    assert Path(hello.libmpi).samefile(library)


@pytest.mark.real
@pytest.mark.parametrize(("stack", "says"), [("openmpi-5", "Open MPI v5"), ("mpich", "MPICH Version: 5")])
def test_the_mpi_that_mpi4py_loads(tmp_path: Path, stacks_here: object, stack: str, says: str) -> None:
    assert callable(stacks_here)
    prefix: Path = stacks_here(stack)
    argv = (f"{prefix}/bin/python", str(PROGRAM), "--mpi4py", "--", "true")
    ended = Ended(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT), tmp_path)
    hello = ended.records.hellos[0]
    assert hello.library.startswith(says)
    assert Path(hello.libmpi).is_relative_to(prefix.resolve())
    assert ended.starts[0].versions["mpi4py"].startswith("4.")


def test_a_launcher_may_drop_the_separator(tmp_path: Path) -> None:
    """argparse of torchrun takes a `--` behind its script for its own."""
    ended = run(tmp_path, "sh", "-c", 'echo "$0" "$1"', "a", "--")
    assert ended.lines == ["a --"]
