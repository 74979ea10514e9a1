"""Dumps the stacks of a hanging job's ranks on this node: state, wait channel and threads of each process.

    python3 -c THIS < REQUEST > ANSWER

It runs on the node alone, with Python 3.6 or later and nothing else. The request is a JSON object:

    pids      processes that may be ranks
    below     processes whose descendants may be ranks, too
    hellos    [[rank, pid, host], ...]: the ranks that reported
    py_spy    the path of py-spy, if it is not on PATH; a name that ends in .z is unpacked first
    offer     the machine (`x86_64`) for which py-spy can be sent: if ranks need it, the answer only asks for it
    seconds   the time for all of it
    gap       seconds between two samples of one process
    alone     whether to create a process group

The answer is JSON, compressed by zlib: `host`, `machine`, `wants`, `ranks`, and `stopped`. The last are the launchers
and daemons that a signal has stopped. A process with a rank in a launcher's variable counts if that rank did not
report. Nothing else of its environment is read or kept.
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

# Rank variables of launchers, the nearest to MPI first: a batch system also sets its own for the same process.
RANK_NAMES = (b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK", b"RANK", b"SLURM_PROCID")
COMMUNICATES = re.compile(rb"/lib(?:mpi|mpich|mpi_cray|nccl|rccl|torch_cpu|shmem|oshmem)\b[^/\n]*\.so")
PYTHON = re.compile(rb"/(?:lib)?python[23][\d.]*(?:\.so[\d.]*)?$", re.MULTILINE)
WRAPPERS = ("sh", "bash", "dash", "env", "timeout", "numactl", "time", "nice", "taskset", "strace", "gdbserver")
MOST_RANKS, MOST_FRAMES, MOST_THREADS = 512, 150, 24
LONGEST_TEXT, LONGEST_WORD = 20000, 300  # characters
LONGEST_FILE = 4 << 20  # bytes
QUICK = 1.5  # seconds: slower samples are not repeated
NATIVE_SHARE = 0.7  # of the time left
GAP_FRACTION = 0.381966  # of the gap: no loop's period fits both


def read_proc(pid: int, name: str) -> bytes:
    """Read a file of /proc/PID; return b"" if it cannot be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - reads a bounded part
            return file.read(LONGEST_FILE)
    except OSError:
        return b""


def read_proc_line(pid: int, name: str) -> str:
    """Read a file of /proc/PID as one line of text."""
    return " ".join(read_proc(pid, name).decode(errors="replace").split())[:LONGEST_WORD]


def processes() -> Dict[int, Tuple[int, str, str]]:
    """Return parent, name and state of every process."""
    table = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are what is needed
        if entry.isdigit():
            name, _, rest = read_proc(int(entry), "stat").decode(errors="replace").partition("(")[2].rpartition(")")
            if rest:
                state, parent = rest.split()[:2]
                table[int(entry)] = (int(parent), name, state)
    return table


def descendants(table: Dict[int, Tuple[int, str, str]], roots: Iterable[int], spared: Set[int]) -> Set[int]:
    """Return the descendants of `roots`, without `spared` and their descendants."""
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
    """Return the ranks that launchers set in the environment of a process, by variable."""
    found = {}
    for entry in read_proc(pid, "environ").split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in RANK_NAMES and re.match(rb"\d{1,7}\Z", value):
            found[name] = int(value)
    return found


def job_processes(request: Fields, table: Dict[int, Tuple[int, str, str]]) -> Set[int]:
    """Return the processes of the job on this node."""
    mine = {os.getpid()}
    pids = {pid for pid in request.get("pids", ()) if pid in table} - mine
    return pids | descendants(table, [*request.get("below", ()), *pids], mine)


def stopped_processes(pids: Set[int], ranks: Iterable[int], table: Dict[int, Tuple[int, str, str]]) -> List[Fields]:
    """List processes stopped by a signal (state T), without ranks and their descendants."""
    launching = pids - set(ranks) - descendants(table, ranks, set())
    return [{"pid": pid, "name": command_name(pid, table[pid][1])} for pid in sorted(launching) if table[pid][2] == "T"]


def command_name(pid: int, name: str) -> str:
    """Return the kernel's name of a process, in full if its command begins with that name."""
    command = read_proc(pid, "cmdline").partition(b"\0")[0].decode(errors="replace").rpartition("/")[2]
    return command[:LONGEST_WORD] if command.startswith(name) else name


def find_ranks(request: Fields, pids: Set[int], table: Dict[int, Tuple[int, str, str]]) -> Dict[int, int]:
    """Return the ranks on this node and their processes."""
    mine = {os.getpid()}
    host = platform.node().split(".")[0]
    ranks = {rank: pid for rank, pid, where in request.get("hellos", ()) if pid in pids and where.split(".")[0] == host}
    by_pid = {pid: launcher_ranks(pid) for pid in sorted(pids)}
    name = next((name for name in RANK_NAMES if any(name in one for one in by_pid.values())), b"")
    candidates = {}  # type: Dict[int, List[int]]
    for pid, names in by_pid.items():
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
    """A sampler of processes with the tools at hand, until `deadline`."""

    def __init__(self, request: Fields) -> None:
        self.deadline = time.monotonic() + request["seconds"]
        self.gap = request["gap"]
        self.py_spy = unpack_tool(request.get("py_spy") or "") or shutil.which("py-spy")
        self.gdb = shutil.which("gdb")
        self.slots = threading.Semaphore(max(4, 2 * (os.cpu_count() or 1)))
        self.running = set()  # type: Set[subprocess.Popen[bytes]]

    def left(self) -> float:
        """Return the seconds until the deadline."""
        return self.deadline - time.monotonic()

    def run(self, *argv: str, share: float = 1.0) -> Tuple[int, bytes, str]:
        """Run a command for a share of the time left; return exit status, output and error text."""
        with self.slots:
            limit = self.left() * share
            if limit <= 0.1:
                return 1, b"", "no time was left"
            pipe = subprocess.PIPE
            environ = dict(os.environ, DEBUGINFOD_URLS="", LC_ALL="C", RUST_BACKTRACE="0")
            try:
                process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environ)
            except OSError as error:
                return 1, b"", str(error)
            self.running.add(process)
            try:
                out, err = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                process.kill()
                return 1, b"", f"{Path(argv[0]).name} took too long"
            finally:
                self.running.discard(process)
        text = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
        return process.returncode, out, " ".join(text[:8])[:LONGEST_WORD]

    def stop(self) -> None:
        """Kill the commands that still run."""
        for process in list(self.running):
            with contextlib.suppress(OSError):
                process.kill()

    def stacks(self, pid: int, state: str, python: bool) -> Fields:
        """Return the stacks of one process by the best working tool, else the errors."""
        trouble = []
        if python and self.py_spy:
            # Without native frames, they may be unavailable; a stopped process cannot be stopped again.
            ways = (["--native"], []) if state not in "Tt" else (["--nonblocking"],)
            for way in ways:
                # Reading the symbols of large libraries may take too long; the last way then has time left.
                share = 1.0 if way is ways[-1] else NATIVE_SHARE
                argv = (self.py_spy, "dump", "--json", "--full-filenames", "--pid", str(pid), *way)
                code, out, text = self.run(*argv, share=share)
                threads = parse_py_spy(out) if not code else None
                if threads is not None:
                    seen = {"tool": "py-spy", "threads": threads}  # type: Fields
                    whole = way != [] and not is_broken(threads)
                    return seen if whole else dict(seen, **self.by_gdb(pid, trouble))
                trouble.append(f"py-spy: {text}")
        return dict({"tool": "proc", "trouble": trouble}, **self.by_gdb(pid, trouble))

    def by_gdb(self, pid: int, trouble: List[str]) -> Fields:
        """Return gdb's output for the threads of a process; {} if gdb does not work."""
        if self.gdb:
            quiet = ("-iex", "set debuginfod enabled off", "-iex", "set auto-load no", "-ex", "set width 0")
            words = ("-ex", "set print frame-arguments none", "-ex", f"thread apply all bt {MOST_FRAMES}")
            _, out, text = self.run(self.gdb, "-nx", "-batch", *quiet, *words, "-p", str(pid))
            if b"\n#" in out:
                return {"tool": "gdb", "text": out.decode(errors="replace")[-LONGEST_TEXT:]}
            trouble.append(f"gdb: {text}")
        return {}

    def sample(self, pid: int, python: bool, stacks: bool) -> Fields:
        """Take one sample of a process."""
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
        """Take two samples of one rank, some time apart. Take a third if it runs, since it may be in a loop."""
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
    """Return whether a process is a Python interpreter, or embeds one."""
    return bool(PYTHON.search(read_proc(pid, "maps")))


def unpack_tool(path: str) -> Optional[str]:
    """Unpack a tool that was sent here, and return its path."""
    if not path.endswith(".z"):
        return path or None
    tool = Path(path[:-2])
    try:
        tool.write_bytes(zlib.decompress(Path(path).read_bytes()))
        tool.chmod(0o700)
    except (OSError, zlib.error):
        return None
    return str(tool)


def parse_py_spy(text: bytes) -> Optional[List[Fields]]:
    """Parse the threads of py-spy; return None if they are invalid.

    Each frame is [function, file, line, library of a native frame], innermost first.
    """
    try:
        threads = json.loads(text.decode(errors="replace"))
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
    """Return whether py-spy failed to unwind the native frames of a thread: it then names a file `?`."""
    return any(frame[1] == "?" for thread in threads for frame in thread["frames"])


def main() -> None:
    """Read the request, sample the ranks, and answer before the time is over."""
    request = json.loads(sys.stdin.buffer.read().decode())
    if request.get("alone"):
        os.setpgid(0, 0)
    table = processes()
    pids = job_processes(request, table)
    ranks = find_ranks(request, pids, table)
    sampler = StackSampler(request)
    answer = {"host": platform.node(), "machine": platform.machine(), "ranks": []}  # type: Fields
    answer["stopped"] = stopped_processes(pids, ranks.values(), table)
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
