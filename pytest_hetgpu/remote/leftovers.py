"""Finds leftovers of runs on one machine: processes and folders with an owner's label. Python 3.6 or later.

The JSON argument is `{"remove": [LABEL, ...], "patience": SECONDS}`. First, everything with one of these labels is
removed, as far as the user may. Then everything with any label is printed: `{"things": [{kind, name, ident, owner,
since}], "trouble": [...]}`.

Segments of shared memory (`segments.py`) carry no label. Those in use by labelled processes go with them. Unused ones
are printed with the owner `NOBODY`, which serves as a label here.
"""

import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set, Tuple

import segments

MARK = "hetgpu-owner-1/"
NOBODY = "nobody"
PREFIX = b"HETGPU_OWNER="
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - only looked through
POLL_INTERVAL = 0.02  # seconds
TICKS = os.sysconf("SC_CLK_TCK")

Leftover = Dict[str, Any]


def read_file(path: str) -> bytes:
    """Read the beginning of a file; return b"" if it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(1 << 20)
    except OSError:
        return b""


def label_of(pid: str) -> str:
    """Return the owner's label of a process; "" without one."""
    words = read_file("/proc/" + pid + "/cmdline").rstrip(b"\0").split(b"\0")
    if words and words[-1].startswith(MARK.encode()):
        return words[-1].decode(errors="replace")
    for entry in read_file("/proc/" + pid + "/environ").split(b"\0"):
        if entry.startswith(PREFIX + MARK.encode()):
            return entry[len(PREFIX) :].decode(errors="replace")
    return ""


def processes() -> Tuple[List[Leftover], Dict[int, int]]:
    """Return labelled running processes, and the parent of every process."""
    found, parents = [], {}
    boot = next((int(line.split()[1]) for line in read_file("/proc/stat").splitlines() if line.startswith(b"btime")), 0)
    for entry in os.listdir("/proc"):  # noqa: PTH208
        name, _, rest = read_file("/proc/" + entry + "/stat").decode(errors="replace").partition("(")[2].rpartition(")")
        fields = rest.split()
        if not entry.isdigit() or len(fields) < 20 or fields[0] in "ZX":
            continue
        parents[int(entry)] = int(fields[1])
        label = label_of(entry)
        if label and int(entry) != os.getpid():
            since = boot + int(fields[19]) / TICKS
            found.append({"kind": "process", "name": name, "ident": int(entry), "owner": label, "since": since})
    return found, parents


def folders() -> Iterator[Leftover]:
    """Yield labelled folders of agents and tunnels."""
    places = {os.path.realpath(place) for place in (*FOLDERS, os.environ.get("TMPDIR") or "/tmp")}  # noqa: S108
    for place in sorted(places):
        for path in sorted(Path(place).glob("hetgpu-*/.owner")):
            with contextlib.suppress(OSError):
                found, sign = os.lstat(str(path.parent)), os.lstat(str(path))
                # Only the owner of the folder can have written this file.
                if stat.S_ISDIR(found.st_mode) and stat.S_ISREG(sign.st_mode) and sign.st_uid == found.st_uid:
                    label = read_file(str(path)).decode(errors="replace").strip()
                    if label.startswith(MARK):
                        name = str(path.parent)
                        yield {
                            "kind": "folder", "name": name, "ident": name, "owner": label, "since": found.st_mtime
                        }  # fmt: skip


def shared() -> Iterator[Leftover]:
    """Yield unused segments of shared memory of this user; `ident` is their size.

    `stays` is the reason why a segment may still be in use.
    """
    seen = segments.scan()
    for found, why in ((seen.unused, ""), (seen.doubtful, seen.why)):
        for name, status in sorted(found.items()):
            path, size = f"{segments.FOLDER}/{name}", "%.1f MB" % (status.st_size / 1e6)
            yield {
                "kind": "segment", "name": path, "ident": size, "owner": NOBODY, "since": status.st_mtime, "stays": why
            }  # fmt: skip


def descendants(roots: Set[int], parents: Dict[int, int]) -> Set[int]:
    """Return `roots` and their descendants, without this process and its ancestors."""
    spared, pid = {os.getpid()}, os.getpid()
    while pid in parents and parents[pid] not in spared:
        pid = parents[pid]
        spared.add(pid)
    taken, grown = set(roots), True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in taken} - taken
        taken, grown = taken | more, bool(more)
    return taken - spared


def kill_owned(labels: Set[str], patience: float) -> Set[str]:
    """Kill the processes of these owners and their descendants, until none is found.

    Return the segments of shared memory that they used.
    """
    deadline, sparing = time.monotonic() + patience, True
    held = set()  # type: Set[str]
    while True:
        found, parents = processes()
        taken = descendants({thing["ident"] for thing in found if thing["owner"] in labels}, parents)
        if not taken or time.monotonic() > deadline:
            return held
        held |= segments.used(segments.names(), taken).held
        for pid in taken:
            with contextlib.suppress(OSError):
                # An agent ends its own processes and removes its folder on TERM. After the first round, KILL follows.
                os.kill(pid, signal.SIGTERM if sparing else signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 1.0
        while sparing and time.monotonic() < deadline and any(Path("/proc", str(pid)).exists() for pid in taken):
            time.sleep(POLL_INTERVAL)
        sparing = False
        time.sleep(POLL_INTERVAL)


def main() -> None:
    """Remove the requested leftovers, and print all others."""
    request = json.loads(sys.argv[1])
    labels, trouble = set(request["remove"]), []
    if labels:
        held = kill_owned(labels, request["patience"])
        segments.remove(held | (segments.names() if NOBODY in labels else set()))
        for folder in list(folders()):
            if folder["owner"] in labels:
                shutil.rmtree(folder["ident"], ignore_errors=True)
                if Path(folder["ident"]).exists():
                    trouble.append(folder["ident"] + " cannot be removed: not ours")
    print(json.dumps({"things": [*processes()[0], *folders(), *shared()], "trouble": trouble}))


if __name__ == "__main__":
    main()
