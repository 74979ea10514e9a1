"""Runs an external program as this rank. Before, it reports the rank and the MPI that the program will load.

    [--folder GLOB]...     folders to search for the program before all others
    [--mpi4py]             the program uses mpi4py: report the MPI that it loads
    [--no-mpi]             the program is no MPI program
    [--junit FILE]         print the test results that the program writes there; {rank} in FILE and ARGS is the rank
    [--server HOST:PORT]   rank 0 serves on that port, and the others wait until it does
    -- PROGRAM ARGS...     the command of the rank; with several, separated by `:::`, rank I takes the Ith or the last

The program is a child of this process, which reports how it ended and then ends in the same way. So a failure counts
even if the launcher exits with 0. If the program is not found, a record lists the searched folders, and the rank exits
with 127. Records are framed as in `records.py`. Needs Python 3.8 only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import json
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NoReturn, Tuple

import cores
from junit_results import print_results, remove
from records import library_path, now, version_line

STDOUT = 1
NOT_FOUND, NOT_STARTED = 127, 126
SERVER_TIMEOUT = 60.0  # seconds for a server to listen
POLL_INTERVAL = 0.02
MOST_LOOKED, LONGEST = 20, 150
BETWEEN = ":::"
RANK = "{rank}"

# Folders of benchmark suites outside PATH.
USUAL_FOLDERS = (
    *(f"{prefix}/libexec/osu-micro-benchmarks/*/*" for prefix in ("/usr/local", "/usr", "/opt/osu*", "/opt/mpi")),
    *(f"{prefix}/{name}-tests/build" for prefix in ("/usr/local", "/opt") for name in ("nccl", "rccl")),
)
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK")
STARTED_BY_OPENMPI = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE")
# libmpi.so.40, libmpi.so.12, libmpich.so.12, libmpi_cray.so.12; not the bindings libmpi_cxx, libmpi_mpifh, ...
LIBMPI = re.compile(r"lib(?:mpi|mpich|mpi_cray|mpi_gnu\w*|mpi_amd\w*)(?:_abi)?\.so(?:\.[\d.]+)?")
PROGRAM_HEADER, INTERPRETER, LONGEST_PATH = 0x38, 3, 4096  # of ELF64 (elf.h)
PARENT_DEATH_SIGNAL, DUMPABLE = 1, 4  # PR_SET_PDEATHSIG and PR_SET_DUMPABLE of linux/prctl.h
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: List[str]) -> NoReturn:
    """Report this rank, run its program, and report and repeat its end."""
    options, commands = parse_arguments(arguments)
    rank = from_environment(RANKS, 0)
    command = commands[min(rank, len(commands) - 1)]
    file = options.junit.replace(RANK, str(rank))
    if file:
        # An earlier file of that name must not count for this run.
        remove(file)
        command = [word.replace(RANK, str(rank)) for word in command]
    started = time.time_ns()
    status = run_child(lambda: start(options, rank, command))
    cores.collect(started)
    if file:
        print_results(file)
    emit_end(rank, status)
    end_as(status)


def run_child(start: Callable[[], NoReturn]) -> int:
    """Call `start` in a child, and pass on signals until it ends. Return its wait status."""
    parent, before = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    child = os.fork()
    if not child:
        # The program must not outlive its rank.
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(NOT_STARTED)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        start()
    for number in FORWARDED:
        # A signal that is ignored here is ignored by the program, too.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda got, _frame: os.kill(child, got))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # Between its end and the wait, the child keeps its pid, so a signal reaches no other process.
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    return os.waitpid(child, 0)[1]


def emit_end(rank: int, status: int) -> None:
    """Report how the program ended, on a line of its own: the program's last line may lack its end."""
    by = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"code": os.WEXITSTATUS(status)}
    with contextlib.suppress(OSError):  # without a reader, the exit status is what is left
        emit(b"\n", t="exit", rank=rank, **by, at=now())


def end_as(status: int) -> NoReturn:
    """End this process as the program ended, without a core file of its own."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        ctypes.CDLL(None).prctl(DUMPABLE, 0)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # the first process of a container survives its signals
    os._exit(os.WEXITSTATUS(status))


def start(options: argparse.Namespace, rank: int, command: List[str]) -> NoReturn:
    """Report this process as the rank, and replace it by the program."""
    size = from_environment(SIZES, 1)
    path, looked = find_program(command[0], options.folder)
    library, file, versions = mpi4py_library() if options.mpi4py else linked_mpi(path)
    host = platform.node()
    emit(t="hello", rank=rank, size=size, host=host, pid=os.getpid(), library=library, libmpi=file, at=now())
    emit(t="program", rank=rank, host=host, name=command[0], path=path, looked=looked, versions=versions, exits=True)
    if not path:
        sys.exit(NOT_FOUND)
    if options.server:
        wait_for_server(rank, options.server)
    if options.no_mpi or not STARTED_BY_OPENMPI & {*os.environ}:
        # For a crash of a Python program. Its handler keeps Open MPI from installing one, which shows native frames.
        os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    cores.allow()
    exec_program(path, command)


def parse_arguments(arguments: List[str]) -> Tuple[argparse.Namespace, List[List[str]]]:
    """Return the options, and the command of each rank."""
    # torchrun drops a `--` that follows the name of its script.
    split = arguments.index("--") if arguments[0].startswith("--") else -1
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", action="append", default=[])
    parser.add_argument("--mpi4py", action="store_true")
    parser.add_argument("--no-mpi", action="store_true")
    parser.add_argument("--server", default="")
    parser.add_argument("--junit", default="")
    commands: List[List[str]] = [[]]
    for word in arguments[split + 1 :]:
        if word == BETWEEN:
            commands.append([])
        else:
            commands[-1].append(word)
    return parser.parse_args(arguments[: max(split, 0)]), commands


def from_environment(names: Tuple[str, ...], default: int) -> int:
    """Return the first of these variables that holds a number: launchers set the rank in them."""
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default)


def find_program(program: str, folders: List[str]) -> Tuple[str, List[str]]:
    """Return the path of the program; if it is missing, "" and the searched folders.

    The folders are cut to the size of a record.
    """
    if "/" in program:
        return (program, []) if executable(program) else ("", [program])
    beside = str(Path(sys.executable).parent)  # without following links: the stack's own bin
    path = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    looked = list(dict.fromkeys([*existing_folders(folders), beside, *path, *existing_folders(USUAL_FOLDERS)]))
    for folder in looked:
        candidate = f"{folder}/{program}"
        if executable(candidate):
            return candidate, []
    # Include globs that match no folder.
    return "", [folder[:LONGEST] for folder in dict.fromkeys([*folders, *looked])][:MOST_LOOKED]


def existing_folders(patterns: Iterable[str]) -> Iterator[str]:
    """Yield existing folders that match."""
    for pattern in patterns:
        yield from sorted(str(path) for path in Path("/").glob(pattern.lstrip("/")) if path.is_dir())


def executable(path: str) -> bool:
    """Return whether such a program exists."""
    return Path(path).is_file() and os.access(path, os.X_OK)


def exec_program(path: str, command: List[str]) -> NoReturn:
    """Replace this process. A program found by its plain name keeps that name, as in a shell."""
    plain = "/" in command[0] or shutil.which(command[0]) != path
    try:
        os.execv(path, [path if plain else command[0], *command[1:]])
    except OSError as error:
        print(f"cannot start {path}: {error.strerror}", flush=True)
    sys.exit(NOT_STARTED)


def mpi4py_library() -> Tuple[str, str, Dict[str, str]]:
    """Return the version text of mpi4py's MPI, its file, and mpi4py's version, without starting MPI."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return "", "", {}  # the program itself reports the error
    handle = ctypes.CDLL(MPI.__file__)
    return version_line(MPI.Get_library_version()), library_path(handle), {"mpi4py": mpi4py.__version__}


def linked_mpi(path: str) -> Tuple[str, str, Dict[str, str]]:
    """Return the same for the MPI that a dynamic program is linked with; "" for other programs."""
    for file in linked_libraries(path) if path else ():
        try:
            handle = ctypes.CDLL(file)
            length, text = ctypes.c_int(), ctypes.create_string_buffer(1 << 16)
            handle.MPI_Get_library_version(text, ctypes.byref(length))
        except (OSError, AttributeError):
            continue
        return version_line(text.value.decode(errors="replace")), library_path(handle), {}
    return "", "", {}


def linked_libraries(path: str) -> Iterator[str]:
    """Yield the MPI libraries that the loader would take for a program, without starting it."""
    try:
        loader = interpreter_of(path)
    except (OSError, OverflowError, ValueError, struct.error):  # damaged; starting it reports the error
        return
    if not loader:
        return
    try:
        listed = subprocess.run(
            [loader, "--list", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
    except OSError:
        return
    for line in listed.stdout.decode(errors="replace").splitlines():
        name, _, rest = line.strip().partition(" => ")
        if LIBMPI.fullmatch(name) and rest.startswith("/"):
            yield rest.partition(" (")[0]


def interpreter_of(path: str) -> str:
    """Return the loader of a 64-bit ELF program; "" for scripts and static programs."""
    with Path(path).open("rb") as program:
        head = program.read(64)
        if head[:5] != b"\x7fELF\x02":
            return ""
        order = "<" if head[5:6] == b"\x01" else ">"
        (start,) = struct.unpack_from(order + "Q", head, 0x20)
        (count,) = struct.unpack_from(order + "H", head, 0x38)
        program.seek(start)
        headers = program.read(count * PROGRAM_HEADER)
        for index in range(len(headers) // PROGRAM_HEADER):
            kind, _, offset, _, _, size = struct.unpack_from(order + "IIQQQQ", headers, index * PROGRAM_HEADER)
            if kind == INTERPRETER:
                program.seek(offset)
                return program.read(min(size, LONGEST_PATH)).rstrip(b"\0").decode(errors="replace")
    return ""


def wait_for_server(rank: int, server: str) -> None:
    """Leave a doorkeeper behind on rank 0; on other ranks wait until it lets this one in.

    A server takes the first connection for its client, so no rank may probe its port. The doorkeeper is a child of rank
    0. It listens on the next port as soon as the kernel shows that rank 0 listens.
    """
    host, _, port = server.rpartition(":")
    if rank == 0:
        start_doorkeeper(int(port))
        return
    deadline = time.monotonic() + SERVER_TIMEOUT
    while True:
        try:
            socket.create_connection((host, int(port) + 1), timeout=SERVER_TIMEOUT).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_INTERVAL)
        else:
            return


def start_doorkeeper(port: int) -> None:
    """Leave a child behind that accepts one client as soon as a process listens on the port."""
    parent = os.getpid()
    if os.fork():
        return
    deadline = time.monotonic() + SERVER_TIMEOUT
    while not is_listening(port):
        if time.monotonic() > deadline or os.getppid() != parent:
            os._exit(0)
        time.sleep(POLL_INTERVAL)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.settimeout(SERVER_TIMEOUT)
        try:
            server.bind(("", port + 1))
            server.listen()
            server.accept()[0].close()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                print(f"cannot start a server: port {port + 1} beside its own is taken", flush=True)
    os._exit(0)


def is_listening(port: int) -> bool:
    """Return whether any process in this network namespace listens on a TCP port (proc_net_tcp.txt: state 0A)."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", name).read_text().splitlines()[1:]
        except OSError:
            continue
        rows = (line.split() for line in lines)
        if any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows):
            return True
    return False


def emit(before: bytes = b"", **record: Any) -> None:
    """Write one record by one system call, after the bytes `before`."""
    payload = json.dumps(record, separators=(",", ":")).encode("ascii")
    line = b"%b@hetgpu:%04d:%08x:%b\n" % (before, len(payload), zlib.crc32(payload), payload)
    while line:
        line = line[os.write(STDOUT, line) :]


if __name__ == "__main__":
    main(sys.argv[1:])
