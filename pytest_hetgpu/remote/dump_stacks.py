"""Looks where the ranks of a job are that does not end: what each process is called, does, and waits in.

    python3 -c THIS < REQUEST > ANSWER

It runs on the node by itself, with Python 3.6 or later and nothing else. The request is a JSON object:

    pids      processes that may be ranks
    below     processes whose descendants may be, too
    hellos    [[rank, pid, host], ...]: who has said that it is a rank
    py_spy    where py-spy is, if it is not on the PATH; a name that ends in .z is unpacked first
    offer     the machine (`x86_64`) for which py-spy can be sent: if ranks need it, nothing is looked at but that said
    seconds   the time there is for all of it
    gap       seconds between two looks at one process
    alone     whether to make a process group of its own

The answer is JSON, compressed by zlib: `host`, `machine`, `wants`, `ranks`, and `stopped`: the launchers and daemons
that a signal has stopped. A process that is a rank by a variable of its launcher counts where none of that rank has
said hello. Of its environment nothing else is read or kept.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

Fields = Dict[str, Any]

# What launchers tell a process of its rank, the nearest to MPI first: batch systems also tell it those around it.
RANK_NAMES = (b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK", b"RANK", b"SLURM_PROCID")
COMMUNICATES = re.compile(rb"/lib(?:mpi|mpich|mpi_cray|nccl|rccl|torch_cpu|shmem|oshmem)\b[^/\n]*\.so")
PYTHON = re.compile(rb"/(?:lib)?python[23][\d.]*(?:\.so[\d.]*)?$", re.MULTILINE)
WRAPPERS = ("sh", "bash", "dash", "env", "timeout", "numactl", "time", "nice", "taskset", "strace", "gdbserver")
MOST_RANKS, MOST_FRAMES, MOST_THREADS = 512, 150, 24
LONGEST_TEXT, LONGEST_WORD = 20000, 300  # characters
LONGEST_FILE = 4 << 20  # bytes
QUICK = 1.5  # seconds: what took longer is not done twice
GAP_FRACTION = 0.381966  # of the gap: no loop's period fits both


def read_proc(pid: int, name: str) -> bytes:
    """A file of /proc/PID; empty where it cannot be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - reads a bounded part
            return file.read(LONGEST_FILE)
    except OSError:
        return b""


def read_proc_line(pid: int, name: str) -> str:
    """The same as one line of text."""
    return " ".join(read_proc(pid, name).decode(errors="replace").split())[:LONGEST_WORD]


def processes() -> Dict[int, Tuple[int, str, str]]:
    """Parent, name and state of every process."""
    table = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are what is needed
        if entry.isdigit():
            name, _, rest = read_proc(int(entry), "stat").decode(errors="replace").partition("(")[2].rpartition(")")
            if rest:
                state, parent = rest.split()[:2]
                table[int(entry)] = (int(parent), name, state)
    return table


def descendants(table: Dict[int, Tuple[int, str, str]], roots: Iterable[int], spared: Set[int]) -> Set[int]:
    """Descendants of `roots`, without those of `spared`."""
    children = {}  # type: Dict[int, List[int]]
    for pid, (parent, _, _) in table.items():
        children.setdefault(parent, []).append(pid)
    waiting, found = list(roots), set()  # type: List[int], Set[int]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found and pid not in spared:
                found.add(pid)
                waiting.append(pid)
    return found


def launcher_ranks(pid: int) -> Dict[bytes, int]:
    """What launchers have told a process of its rank."""
    told = {}
    for entry in read_proc(pid, "environ").split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in RANK_NAMES and re.match(rb"\d{1,7}\Z", value):
            told[name] = int(value)
    return told


def job_processes(request: Fields, table: Dict[int, Tuple[int, str, str]]) -> Set[int]:
    """The processes of the job that are here."""
    mine = {os.getpid()}
    pids = {pid for pid in request.get("pids", ()) if pid in table} - mine
    return pids | descendants(table, [*request.get("below", ()), *pids], mine)


def stopped(pids: Set[int], ranks: Iterable[int], table: Dict[int, Tuple[int, str, str]]) -> List[Fields]:
    """Those that a signal has stopped (state T), without ranks and what these have started."""
    launching = pids - set(ranks) - descendants(table, ranks, set())
    return [{"pid": pid, "name": command_name(pid, table[pid][1])} for pid in sorted(launching) if table[pid][2] == "T"]


def command_name(pid: int, name: str) -> str:
    """What a process is called: by the kernel, in full where its command has that name."""
    command = read_proc(pid, "cmdline").partition(b"\0")[0].decode(errors="replace").rpartition("/")[2]
    return command[:LONGEST_WORD] if command.startswith(name) else name


def find_ranks(request: Fields, pids: Set[int], table: Dict[int, Tuple[int, str, str]]) -> Dict[int, int]:
    """The ranks here and their processes."""
    mine = {os.getpid()}
    host = platform.node().split(".")[0]
    ranks = {rank: pid for rank, pid, where in request.get("hellos", ()) if pid in pids and where.split(".")[0] == host}
    told = {pid: launcher_ranks(pid) for pid in sorted(pids)}
    name = next((name for name in RANK_NAMES if any(name in one for one in told.values())), b"")
    candidates = {}  # type: Dict[int, List[int]]
    for pid, names in told.items():
        if name in names and names[name] not in ranks:
            candidates.setdefault(names[name], []).append(pid)
    for rank, found in candidates.items():
        depth = {pid: len(descendants(table, [pid], mine)) for pid in found}
        ranks[rank] = min(
            found,
            key=lambda pid: (
                not COMMUNICATES.search(read_proc(pid, "maps")),
                table[pid][1] in WRAPPERS,
                -depth[pid],
                pid,
            ),
        )
    return dict(sorted(ranks.items())[:MOST_RANKS])


class StackSampler:
    """Looks at processes with whatever is there, until `deadline`."""

    def __init__(self, request: Fields) -> None:
        self.deadline = time.monotonic() + request["seconds"]
        self.gap = request["gap"]
        self.py_spy = unpack_tool(request.get("py_spy") or "") or shutil.which("py-spy")
        self.gdb = shutil.which("gdb")
        self.slots = threading.Semaphore(max(4, 2 * (os.cpu_count() or 1)))
        self.running = set()  # type: Set[subprocess.Popen[bytes]]

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def run(self, *argv: str) -> Tuple[int, bytes, str]:
        """Exit status, output and complaint of a command that has only the time that is left."""
        with self.slots:
            if self.left() <= 0.1:
                return 1, b"", "no time was left"
            pipe = subprocess.PIPE
            environ = dict(os.environ, DEBUGINFOD_URLS="", LC_ALL="C", RUST_BACKTRACE="0")
            try:
                process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environ)
            except OSError as error:
                return 1, b"", str(error)
            self.running.add(process)
            try:
                out, err = process.communicate(timeout=max(0.1, self.left()))
            except subprocess.TimeoutExpired:
                process.kill()
                return 1, b"", f"{Path(argv[0]).name} took too long"
            finally:
                self.running.discard(process)
        said = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
        return process.returncode, out, " ".join(said[:8])[:LONGEST_WORD]

    def stop(self) -> None:
        """Ends what still runs."""
        for process in list(self.running):
            with contextlib.suppress(OSError):
                process.kill()

    def stacks(self, pid: int, state: str, python: bool) -> Fields:
        """The stacks of one process, by the best tool that works; else what was the trouble."""
        trouble = []
        if python and self.py_spy:
            # Where native frames cannot be had, and where a stopped process cannot be stopped once more.
            ways = (["--native"], []) if state not in "Tt" else (["--nonblocking"],)
            for way in ways:
                code, out, said = self.run(self.py_spy, "dump", "--json", "--full-filenames", "--pid", str(pid), *way)
                threads = parse_py_spy(out) if not code else None
                if threads is not None:
                    seen = {"tool": "py-spy", "threads": threads}  # type: Fields
                    return seen if not is_broken(threads) else dict(seen, **self.by_gdb(pid, trouble))
                trouble.append(f"py-spy: {said}")
        return dict({"tool": "proc", "trouble": trouble}, **self.by_gdb(pid, trouble))

    def by_gdb(self, pid: int, trouble: List[str]) -> Fields:
        """What gdb prints of a process's threads; empty where it does not work."""
        if self.gdb:
            quiet = ("-iex", "set debuginfod enabled off", "-iex", "set auto-load no", "-ex", "set width 0")
            words = ("-ex", "set print frame-arguments none", "-ex", f"thread apply all bt {MOST_FRAMES}")
            _, out, said = self.run(self.gdb, "-nx", "-batch", *quiet, *words, "-p", str(pid))
            if b"\n#" in out:
                return {"tool": "gdb", "text": out.decode(errors="replace")[-LONGEST_TEXT:]}
            trouble.append(f"gdb: {said}")
        return {}

    def sample(self, pid: int, python: bool, stacks: bool) -> Fields:
        """One look at a process."""
        began = time.monotonic()
        status = read_proc(pid, "stat").decode(errors="replace").rpartition(")")[2].split()
        found = {"state": status[0] if status else "X"}  # type: Fields
        if len(status) > 12:
            found["cpu"] = int(status[11]) + int(status[12])
        moved = re.findall(rb"^[rw]char: (\d+)", read_proc(pid, "io"), re.MULTILINE)
        found["io"] = sum(map(int, moved)) if moved else None
        found["wchan"], found["syscall"] = (
            read_proc_line(pid, "wchan"),
            read_proc_line(pid, "syscall").partition(" ")[0],
        )
        found["kernel"] = read_proc_line(pid, "stack")
        if stacks and found["state"] not in "ZX":
            found.update(self.stacks(pid, found["state"], python))
        found["took"] = round(time.monotonic() - began, 3)
        return found

    def sample_rank(self, rank: int, pid: int, answer: List[Fields]) -> None:
        """Two looks at one rank, some time apart; a third at one that runs: a loop may be where it was by chance."""
        python = is_python(pid)
        one = {"rank": rank, "pid": pid, "name": read_proc_line(pid, "comm"), "python": python, "samples": []}  # type: Fields
        answer.append(one)
        began = time.monotonic()
        first = self.sample(pid, python, True)
        one["samples"].append(first)
        time.sleep(max(0.0, min(self.gap - (time.monotonic() - began), self.left())))
        again = first.get("tool") != "proc" and first["took"] < min(QUICK, self.left())
        one["samples"].append(self.sample(pid, python, again))
        if first["state"] == "R" and again and first["took"] + self.gap < self.left():
            time.sleep(self.gap * GAP_FRACTION)
            one["samples"].append(self.sample(pid, python, again))


def is_python(pid: int) -> bool:
    """Whether a process is an interpreter of Python, or holds one."""
    return bool(PYTHON.search(read_proc(pid, "maps")))


def unpack_tool(path: str) -> Optional[str]:
    """A tool that was sent here, made ready to run."""
    if not path.endswith(".z"):
        return path or None
    tool = Path(path[:-2])
    try:
        tool.write_bytes(zlib.decompress(Path(path).read_bytes()))
        tool.chmod(0o700)
    except (OSError, zlib.error):
        return None
    return str(tool)


def parse_py_spy(said: bytes) -> Optional[List[Fields]]:
    """py-spy's threads: of each frame its function, file, line, and library where it is native; innermost first."""
    try:
        threads = json.loads(said.decode(errors="replace"))
        return [
            {
                "tid": thread.get("os_thread_id"),
                "name": str(thread.get("thread_name") or "")[:LONGEST_WORD],
                "active": bool(thread.get("active")),
                "frames": [
                    [
                        str(frame["name"])[:LONGEST_WORD],
                        str(frame["filename"])[:LONGEST_WORD],
                        int(frame["line"]),
                        str(frame.get("module") or "")[:LONGEST_WORD],
                    ]
                    for frame in thread["frames"][:MOST_FRAMES]
                ],
            }
            for thread in threads[:MOST_THREADS]
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_broken(threads: List[Fields]) -> bool:
    """Whether py-spy lost its way among the native frames of a thread: it then names a file `?`."""
    return any(frame[1] == "?" for thread in threads for frame in thread["frames"])


def main() -> None:
    """Reads the request, looks, and answers before the time is over."""
    request = json.loads(sys.stdin.buffer.read().decode())
    if request.get("alone"):
        os.setpgid(0, 0)
    table = processes()
    pids = job_processes(request, table)
    ranks = find_ranks(request, pids, table)
    sampler = StackSampler(request)
    answer = {"host": platform.node(), "machine": platform.machine(), "ranks": []}  # type: Fields
    answer["stopped"] = stopped(pids, ranks.values(), table)
    wants = not sampler.py_spy and request.get("offer") == platform.machine() and any(map(is_python, ranks.values()))
    answer["wants"] = wants
    if not wants:
        threads = [
            threading.Thread(target=sampler.sample_rank, args=(rank, pid, answer["ranks"]), daemon=True)
            for rank, pid in ranks.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, sampler.left() + 0.2))
        sampler.stop()
    sys.stdout.buffer.write(zlib.compress(json.dumps(answer).encode()))
    sys.stdout.buffer.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
