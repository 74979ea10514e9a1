"""A checked all-reduce in which one rank fails, for real and in one of the ways that ranks do fail.

    --fault NAME   one of FAULTS
    --rank 1       the rank that fails; `flood` and `slow` run on all ranks, `cut` on the last
    --when before  before the rank enters the all-reduce, or `in`: in its reduction, called by MPI

Some faults happen before MPI starts, so this module imports MPI only after them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import itertools
import os
import re
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Dict, NoReturn, Tuple

ABSENT = "hetgpu-absent"
EXIT_CODE = 3
FLOOD_LINES = 50_000
FLOOD_LINE = b"[%05d] UCX  ERROR of no meaning: Segmentation fault, out of memory, connection refused " + b"." * 400
SPARE_MEMORY = 64 << 20
HUGE = 1 << 40
MOST_FILLED = 4 << 30
STEP = 0.1
MOMENT = 0.01

_RANK_NAMES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
# Variables that tie a process to its launcher.
_TIES = re.compile(r"PMIX_|PMI2?_|PRTE_|OMPI_COMM_WORLD_|OMPI_UNIVERSE_|OMPI_MCA_(?:ess|orte_|prte_)|HYDI_|MPI_LOCAL")


def no_program() -> NoReturn:
    """Start a program file that does not exist."""
    restart(program=str(Path(__file__).with_name(f"{ABSENT}.py")))


def no_interpreter() -> NoReturn:
    """Start an interpreter that does not exist through env, as in a launcher's context."""
    os.execvp("env", ["env", f"/{ABSENT}/bin/python3", __file__])


def missing_mpi() -> NoReturn:
    """Search libmpi in a folder without it."""
    restart(MPI4PY_LIBMPI=f"/{ABSENT}/libmpi.so")


def other_mpi() -> NoReturn:
    """Load a working copy of libmpi from another place (memory) than the stack's own."""
    home = Path(sys.prefix) / "lib"
    original = next(home.glob("libmpi.so.[0-9]*"), None)
    if original is None:
        sys.exit(f"there is no libmpi to copy in {home}")
    copy = os.memfd_create(original.name, 0)
    os.write(copy, original.read_bytes())
    restart(LD_PRELOAD=f"/proc/self/fd/{copy}", LD_LIBRARY_PATH=f"{home}:{home / 'openmpi'}")


def alone() -> NoReturn:
    """Drop the launcher's variables on every rank, so that each makes a world of its own."""
    for name in [name for name in os.environ if _TIES.match(name)]:
        del os.environ[name]
    restart()


def restart(program: str = __file__, **env: str) -> NoReturn:
    """Start this rank's program again, without the fault, in a changed environment."""
    os.execve(sys.executable, [sys.executable, "-m", "mpi4py", program], {**os.environ, **env})


def segfault() -> None:
    """Write to an unmapped address."""
    ctypes.memset(8, 0, 8)


def kill() -> None:
    """Die as from the kernel's OOM killer, or an administrator's kill."""
    os.kill(os.getpid(), signal.SIGKILL)


def raises() -> NoReturn:
    """Raise an error of the program's own."""
    raise ValueError("raised on purpose")


def no_memory() -> None:
    """Ask numpy for more memory than exists."""
    import numpy as np

    limit_memory()
    np.ones(HUGE, np.uint8)


def no_malloc() -> None:
    """Leave the libraries no memory to work with."""
    import numpy as np
    from mpi4py import MPI

    count = SPARE_MEMORY
    data, result = np.ones(count, np.uint8), np.ones(count, np.uint8)
    limit_memory(1 << 20)
    MPI.COMM_WORLD.Allreduce(data, result)


def limit_memory(spare: int = SPARE_MEMORY) -> None:
    """Limit the growth of this process to `spare` bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + spare
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def fill_memory() -> NoReturn:
    """Fill the memory up to a safe limit; the kernel is expected to end the process before."""
    held = [bytearray(b"x") * SPARE_MEMORY for _ in range(MOST_FILLED // SPARE_MEMORY)]
    raise MemoryError(f"{len(held)} blocks: nothing ended this process: it needs a limit of memory below 4 GiB")


def hang() -> NoReturn:
    """Wait forever."""
    while True:
        signal.pause()


def cut() -> None:
    """Cut the last rank's connections to the others of this host, as a firewall would; keep the launcher's.

    The others sleep meanwhile: a rank that only reads cannot distinguish a cut connection from a closed one.
    """
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    *others, mine = comm.allgather(os.getpid())
    if os.getpid() != mine:
        hang()
    while any(state_of(pid) == "R" for pid in others):
        time.sleep(MOMENT)
    ends = {end for pid in others for end in connections(pid).values()}
    for descriptor, (local, remote) in connections(mine).items():
        if (remote, local) in ends:
            connection = socket.socket(fileno=os.dup(descriptor))
            connection.shutdown(socket.SHUT_WR)  # a shutdown for reading would look like an end
            connection.close()


def state_of(pid: int) -> str:
    """Return the state letter of a process (proc_pid_stat(5)); a rank that waits for MPI runs (R)."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]


def connections(pid: int) -> Dict[int, Tuple[str, str]]:
    """Return local and remote end of each TCP connection of a process, by descriptor."""
    ends = {}
    for table in ("tcp", "tcp6"):
        lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        ends.update({fields[9]: (fields[1][-13:], fields[2][-13:]) for fields in map(str.split, lines)})
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        # One of them was the folder's own.
        with contextlib.suppress(FileNotFoundError):
            inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))  # noqa: PTH115 - Python 3.8
            if inode and inode[1] in ends:
                found[int(entry.name)] = ends[inode[1]]
    return found


def slow() -> NoReturn:
    """Make progress without ever reaching the end."""
    from mpi4py import MPI

    for step in itertools.count():
        total = MPI.COMM_WORLD.allreduce(step)
        os.write(1, b"step %d of many: %d\n" % (step, total))
        time.sleep(STEP)
    raise AssertionError


def flood() -> None:
    """Write alarming text as fast as possible."""
    for start in range(0, FLOOD_LINES, 100):
        text = b"".join(FLOOD_LINE % number + b"\n" for number in range(start, start + 100))
        while text:
            text = text[os.write(1, text) :]


BEFORE_MPI = {
    "no-program": no_program,
    "no-interpreter": no_interpreter,
    "missing-mpi": missing_mpi,
    "other-mpi": other_mpi,
    "alone": alone,
}
AT_THE_COLLECTIVE: Dict[str, Any] = {
    "segfault": segfault,
    "abort": os.abort,
    "kill": kill,
    "exit": lambda: sys.exit(EXIT_CODE),
    "hard-exit": lambda: os._exit(EXIT_CODE),
    "early-exit": lambda: os._exit(0),
    "raise": raises,
    "no-memory": no_memory,
    "no-malloc": no_malloc,
    "fill-memory": fill_memory,
    "hang": hang,
    "missing-library": lambda: ctypes.CDLL(f"lib{ABSENT}.so.1"),
    "missing-module": lambda: importlib.import_module(ABSENT.replace("-", "_")),
}
IN_THE_DATA = ("wrong-data",)
TOGETHER = {"flood": flood, "slow": slow, "cut": cut}
OF_ALL_RANKS = {**TOGETHER, "alone": alone}
FAULTS = ("none", *BEFORE_MPI, *AT_THE_COLLECTIVE, *IN_THE_DATA, *TOGETHER)


def launched_rank() -> int:
    """Return the rank of this process from its launcher's variables; -1 without any."""
    return next((int(os.environ[name]) for name in _RANK_NAMES if name in os.environ), -1)


def run(options: argparse.Namespace) -> None:
    """Run the all-reduce of 1 KiB with the requested fault."""
    import numpy as np
    from harness import MPI, MpiReduction, main

    class Faulty(MpiReduction):
        """A sum of the patterns of all ranks, by MPI or by a reduction in Python."""

        name = "fault"
        timed = False
        has_in_place = False

        def step(self) -> None:
            mine = self.rank == options.rank
            fault = AT_THE_COLLECTIVE.get(options.fault) if mine else None
            if fault and options.when == "before":
                fault()
            if options.fault in TOGETHER:
                TOGETHER[options.fault]()
            total = MPI.Op.Create(reduction(fault, self.dtype), commute=True) if options.when == "in" else MPI.SUM
            self.comm.Allreduce(self.data, self.result, total)
            if mine and options.fault == "wrong-data":
                self.result.view(np.uint8)[3 * self.dtype.itemsize] ^= 1

        def expected(self) -> np.ndarray[Any, Any]:
            return self.total()

    main(Faulty)


def reduction(fault: Any, dtype: Any) -> Any:
    """Return a sum that MPI calls within a collective; it fails if there is a fault."""
    import numpy as np

    def add(source: Any, target: Any, _datatype: Any) -> None:
        if fault:
            fault()
        total = np.frombuffer(target, dtype)
        total += np.frombuffer(source, dtype)

    return add


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--when", choices=("before", "in"), default="before")
    options = parser.parse_args()
    sys.argv[1:] = ["--sizes", "1024"]
    if options.fault in BEFORE_MPI and (options.fault in OF_ALL_RANKS or launched_rank() == options.rank):
        BEFORE_MPI[options.fault]()
    run(options)
