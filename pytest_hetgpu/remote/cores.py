"""Core files of a rank: where a crash of this process writes one, and how large it may be.

Only the process's own limit, filter and working folder change, and only if HETGPU_CRASHES names a folder. A program of
the user keeps its working folder; its core files are moved from there. The setting `kernel.core_pattern` must write
into the working folder. (core(5), setrlimit(2))
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import stat
from pathlib import Path
from typing import Iterator

FOLDER = "HETGPU_CRASHES"
MOST = 512 << 20  # bytes of a core file
SHARE = 4  # all ranks together may fill this fraction of the free space
PRIVATE_MEMORY = "0x11"  # private anonymous memory, and the first page of libraries for their build ids
PATTERN = Path("/proc/sys/kernel/core_pattern")
CORE_MAGIC, CORE_TYPE = b"\x7fELF", b"\x04\x00"  # e_ident, and e_type at byte 16 (elf.h)
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS")


def is_readable() -> bool:
    """Return whether the kernel writes core files into the working folder, and gdb is there to read them."""
    try:
        pattern = PATTERN.read_text(errors="replace").strip()
    except OSError:
        return False
    return bool(pattern) and pattern[0] != "|" and "/" not in pattern and shutil.which("gdb") is not None


def needs_working_folder() -> bool:
    """Return whether variables hold relative paths: of libraries, modules, or a library's log (`UCX_LOG_FILE`)."""
    names = [name for name in os.environ if name in ("LD_LIBRARY_PATH", "PYTHONPATH") or name.endswith("_FILE")]
    parts = [part for name in names for part in os.environ[name].split(os.pathsep)]
    return any(part and not os.path.isabs(part) for part in parts)  # noqa: PTH117 - texts


def prepare() -> bool:
    """Let a crash of this process leave a core file in a folder of its own, named by its pid; return whether it does.

    Nothing else changes.
    """
    base = os.environ.get(FOLDER)
    if not base or not is_readable() or needs_working_folder():
        return False
    try:
        folder = make_folder(base)
        (folder / "program").symlink_to(os.path.realpath("/proc/self/exe"))
        set_limit(base)
        os.chdir(folder)
    except (OSError, ValueError):
        return False
    return True


def allow() -> None:
    """Let programs that this process becomes or starts leave core files in the working folder, until `collect`.

    The kernel replaces an existing file of that name, so there must be none.
    """
    base = os.environ.get(FOLDER)
    if base and is_readable() and not any(named_like_cores()):
        with contextlib.suppress(OSError, ValueError):
            Path(base).mkdir(mode=0o700, exist_ok=True)
            set_limit(base)


def collect(since: int) -> None:
    """Move core files of the working folder that were written after `since` (ns) into a folder of this process."""
    base = os.environ.get(FOLDER)
    if not base or not is_readable():
        return
    with contextlib.suppress(OSError):
        found = [file for file in named_like_cores() if is_core(file, since)]
        folder = make_folder(base) if found else None
        for file in found:
            shutil.move(str(file), str(folder))


def make_folder(base: str) -> Path:
    """Make the folder for core files of this process."""
    Path(base).mkdir(mode=0o700, exist_ok=True)
    folder = Path(base, str(os.getpid()))
    folder.mkdir(0o700)
    return folder


def set_limit(base: str) -> None:
    """Set the size and the parts of core files that the file system of `base` has space for."""
    ranks = next((int(os.environ[name]) for name in _SIZES if os.environ.get(name, "").isdigit()), 1)
    Path("/proc/self/coredump_filter").write_text(PRIVATE_MEMORY)
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    limit = min(MOST, shutil.disk_usage(base).free // (SHARE * max(1, ranks)))
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (limit, hard))


def named_like_cores() -> Iterator[Path]:
    """Yield files of the working folder that have such names as the kernel gives to core files."""
    name = re.sub("%.", "*", PATTERN.read_text(errors="replace").strip())
    for pattern in dict.fromkeys((name, f"{name}.[0-9]*")):
        yield from Path.cwd().glob(pattern)


def is_core(file: Path, since: int) -> bool:
    """Return whether this is a core file of this user that was written after `since` (ns)."""
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mtime_ns < since:
        return False
    with file.open("rb") as core:
        head = core.read(18)
    return head.startswith(CORE_MAGIC) and head[16:] == CORE_TYPE
