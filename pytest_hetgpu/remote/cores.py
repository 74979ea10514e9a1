"""Core files of a rank: where a crash of this process writes one, and how large it may be.

Only the process's own limit, filter and working folder change, and only if HETGPU_CRASHES names a folder. The setting
`kernel.core_pattern` must write into the working folder. (core(5), setrlimit(2))
"""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

FOLDER = "HETGPU_CRASHES"
MOST = 512 << 20  # bytes of a core file
SHARE = 4  # all ranks together may fill this fraction of the free space
PRIVATE_MEMORY = "0x11"  # private anonymous memory, and the first page of libraries for their build ids
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS")


def is_readable() -> bool:
    """Return whether the kernel writes core files into the working folder, and gdb is there to read them."""
    try:
        pattern = Path("/proc/sys/kernel/core_pattern").read_text(errors="replace").strip()
    except OSError:
        return False
    return bool(pattern) and pattern[0] != "|" and "/" not in pattern and shutil.which("gdb") is not None


def needs_working_folder() -> bool:
    """Return whether variables hold relative paths: of libraries, modules, or a library's log (`UCX_LOG_FILE`)."""
    names = [name for name in os.environ if name in ("LD_LIBRARY_PATH", "PYTHONPATH") or name.endswith("_FILE")]
    parts = [part for name in names for part in os.environ[name].split(os.pathsep)]
    return any(part and not os.path.isabs(part) for part in parts)  # noqa: PTH117 - texts


def prepare() -> None:
    """Let a crash of this process leave a core file in a folder of its own, named by its pid; do nothing else."""
    base = os.environ.get(FOLDER)
    if not base or not is_readable() or needs_working_folder():
        return
    try:
        Path(base).mkdir(mode=0o700, exist_ok=True)
        ranks = next((int(os.environ[name]) for name in _SIZES if os.environ.get(name, "").isdigit()), 1)
        folder = Path(base, str(os.getpid()))
        folder.mkdir(0o700)
        (folder / "program").symlink_to(os.path.realpath("/proc/self/exe"))
        Path("/proc/self/coredump_filter").write_text(PRIVATE_MEMORY)
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        limit = min(MOST, shutil.disk_usage(base).free // (SHARE * max(1, ranks)))
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_CORE, (limit, hard))
        os.chdir(folder)
    except (OSError, ValueError):
        return
