"""Core files of a job of this machine: asked for by its ranks (`remote/cores.py`), read by gdb, and deleted.

No setting of the system is changed. Only a kernel.core_pattern that writes into the working folder can be used.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pytest_hetgpu.extensions.runtimes.process.core_file import CoreFacts, read_core
from pytest_hetgpu.model.credentials import without_credentials

FOLDER = "crashes"
"""Name of the folder below the TMPDIR of a job in which ranks write core files."""
_PATTERN = Path("/proc/sys/kernel/core_pattern")
_MOST = 2  # core files that are read; the first ones tell why the job ended
_MOST_FRAMES = 40
_TAIL = 1 << 20  # bytes in which the backtraces of a job are
_BACKTRACE = re.compile(rb":0*(\d+)\] \[ 0\] |^==== backtrace \(tid: *(\d+)\)", re.MULTILINE)
_PATIENCE = 20.0  # seconds for gdb
_QUIET = ("-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no")
_WORDS = ("-ex", "set width 0", "-ex", "set print frame-arguments none", "-ex", f"bt {_MOST_FRAMES}")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - only its free space is read
_FULL = 4 << 20  # bytes: less than a segment of shared memory
_NO_FILE = "no process of the job wrote a core file"


def obstacle(pattern: Path = _PATTERN) -> str:
    """Return why core files cannot be read on this machine; "" if they can."""
    try:
        text = pattern.read_text(errors="replace").strip()
    except OSError:
        return "kernel.core_pattern cannot be read"
    if text.startswith("|"):
        return "kernel.core_pattern hands core files to a program"
    if not text or "/" in text:
        return "kernel.core_pattern does not write core files into the working folder"
    return "" if shutil.which("gdb") else "gdb is not installed"


def report(own: Mapping[str, str], output: int, log: Path) -> str:
    """Append a summary of the job's core files to the file descriptor `output`, and delete them.

    `log` is the file that gets the output. A process whose backtrace is in its last part needs no summary.
    Return why there is none: "" if at least one was read, or if no process needs one.
    """
    if "TMPDIR" not in own:
        return "the job had no temporary folder"
    found = sorted(_files(Path(own["TMPDIR"], FOLDER)), key=lambda file: file.stat().st_mtime_ns)
    shown = _pids_with_backtrace(log) if found else frozenset()
    wanted = [file for file in found if _pid(file) not in shown]
    lines: list[str] = []
    for file in found:
        if file in wanted[:_MOST]:
            lines += ["\n".join(_lines(file))]
        with suppress(OSError):
            file.unlink()
    whole = [text for text in lines if text]
    if whole:
        with suppress(OSError):
            os.write(output, ("\n" + "\n".join(whole) + "\n").encode(errors="replace"))
    if whole or (found and not wanted):
        return ""
    return obstacle() or ("gdb could not read the core file" if found else _NO_FILE)


def _pids_with_backtrace(log: Path) -> frozenset[str]:
    """Return the pids of processes whose handler printed frames: `[n1:4711] [ 0] ` or `backtrace (tid: 4711)`."""
    with suppress(OSError), log.open("rb") as text:
        text.seek(-min(_TAIL, log.stat().st_size), os.SEEK_END)
        return frozenset((ompi or ucx).decode() for ompi, ucx in _BACKTRACE.findall(text.read(_TAIL)))
    return frozenset()


def full_places(own: Mapping[str, str]) -> tuple[str, ...]:
    """Return the full file systems among those that hold shared memory of a job: `TMPDIR /tmp/x has 0 MiB free`.

    A write to a mapped file of a full file system is a SIGBUS.
    """
    places = {"TMPDIR": own.get("TMPDIR", ""), "": _SHARED_MEMORY}
    return tuple(
        f"{name} {place} has {free >> 20} MiB free".strip()
        for name, place in places.items()
        if place and (free := _free(place)) is not None and free < _FULL
    )


def _free(place: str) -> int | None:
    """Return the bytes that this user may still write; None if that cannot be read."""
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None


def _files(base: Path) -> Iterator[Path]:
    """Yield the core files; each is in its process's folder, beside a link to the program if that is ours."""
    with suppress(OSError):
        for folder in base.iterdir():
            yield from (file for file in folder.iterdir() if not file.is_symlink() and file.is_file())


def _facts(file: Path) -> CoreFacts | None:
    with suppress(OSError), file.open("rb") as core:
        return read_core(core)
    return None


def _pid(file: Path) -> str:
    """Return the pid of a core file's process; that of its rank if the file does not show it."""
    facts = _facts(file)
    return str(facts.pid) if facts and facts.pid else file.parent.name


def _lines(file: Path) -> Iterator[str]:
    """Yield the summary of a core file: one line on the end of the process, then its frames; nothing without frames."""
    facts = _facts(file)
    try:
        link = file.with_name("program")
        program = facts.program if facts and not link.is_symlink() else os.path.realpath(link)
        argv = ("gdb", *_QUIET, *_WORDS, program, str(file))
        environ = {**without_credentials(os.environ), "DEBUGINFOD_URLS": "", "LC_ALL": "C"}
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, env=environ, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    text = done.stdout.decode(errors="replace").splitlines()
    at = max((number for number, line in enumerate(text) if line.startswith("#0 ")), default=len(text))
    frames = [line for line in text[at:] if line.startswith("#")]
    if facts is None or not frames:
        return
    host = platform.node().partition(".")[0]
    # The interpreter of our own ranks needs no name.
    name = re.sub(r"[^\w.+-]", "_", Path(facts.program).name)
    of = f" of {name}" if name and not name.startswith("python") else ""
    yield f"hetgpu: core: pid {_pid(file)}{of} on {host} died of {facts.signal}{_where(facts)}"
    yield from (f"hetgpu: core: {line}" for line in frames)


def _where(facts: CoreFacts) -> str:
    if facts.address is None:
        return ""
    detail = f" ({facts.detail})" if facts.detail else ""
    return f"{detail} at {facts.address:#x} in {facts.mapping}"
