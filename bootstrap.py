#!/usr/bin/env python3
"""From a fresh clone to a run, with nothing but Python 3.10 or newer:

    python3 bootstrap.py run  [pytest options]   run matrices/local.yaml on this machine
    python3 bootstrap.py test [pytest options]   run the project's own tests, except slow ones and real runs
    python3 bootstrap.py stack [NAME ...]        only make the MPI stacks

Makes `.venv` (this project, editable) and a virtual environment a stack in `.stacks/NAME`: two MPIs in one
environment overwrite each other's mpirun. What is up to date is left alone. Packages come in the versions, and as the
files, that `requirements/` names; those of stacks with PyTorch in their versions alone.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HOME = ROOT / ".venv"
STACKS = ROOT / ".stacks"
LOCKS = ROOT / "requirements"
DEFAULT_MATRIX = "matrices/local.yaml"
QUICK = "not slow and not real and not nightly"


class Failed(Exception):
    """A step that did not work; the message says which and what to do."""


def say(text: str) -> None:
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


def step(what: str, command: list[str]) -> str:
    """Run one command quietly. Raise Failed with the end of its output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=ROOT)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise Failed(f"{what} failed ({' '.join(command[:4])} ...: exit {done.returncode})\n{tail}")
    return done.stdout


def environment(home: Path, packages: list[list[str]], fingerprint: str) -> None:
    """Make a virtual environment with these packages, one list per call of pip.

    `fingerprint` decides whether it is up to date.
    """
    if home.is_symlink():
        return  # somebody else's environment, put here on purpose
    stamp = home / ".hetgpu-stamp"
    wanted = hashlib.sha256(
        "\n".join([sys.version, fingerprint, *(word for words in packages for word in words)]).encode()
    ).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"making {home.relative_to(ROOT)} (once)")
    try:
        step("making a virtual environment", [sys.executable, "-m", "venv", "--clear", str(home)])
    except Failed as error:
        if "ensurepip" in str(error):
            raise Failed("this Python has no venv module; on Debian and Ubuntu: apt-get install python3-venv") from None
        raise
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for words in packages:
        step(f"installing {', '.join(words)}", [*pip, *words])
    stamp.write_text(wanted)


def project() -> None:
    # What builds it is locked too, so nothing is fetched for that.
    ours = ["--no-deps", "--no-build-isolation", "--editable", "."]
    environment(
        HOME, [locked(LOCKS / "project.txt"), ours], (ROOT / "pyproject.toml").read_text() + lock("project.txt")
    )


def lock(name: str) -> str:
    """Return the text of a lock, "" if there is none."""
    path = LOCKS / name
    return path.read_text() if path.exists() else ""


def locked(path: Path) -> list[str]:
    """Return arguments of pip that install the packages of a lock, by hash alone."""
    return ["--require-hashes", "-r", str(path)]


def stacks(names: list[str]) -> None:
    """Each stack in its own environment, by the pins that the project itself holds."""
    ask = [str(HOME / "bin" / "python"), "-m", "pytest_hetgpu.extensions.stacks"]
    for name in names or step("listing stacks", ask).split():
        held = f"stacks/{name}.txt"
        pins = locked(LOCKS / held) if lock(held) else step(f"stack {name}", [*ask, name]).split()
        environment(STACKS / name, [pins], name + lock(held))


def pytest(arguments: list[str]) -> int:
    python = str(HOME / "bin" / "python")
    variables = {
        **os.environ,
        "HETGPU_STACKS": os.pathsep.join(filter(None, (str(STACKS), os.environ.get("HETGPU_STACKS")))),
    }
    os.chdir(ROOT)
    os.execve(python, [python, "-m", "pytest", *arguments], variables)


def main(arguments: list[str]) -> int:
    command, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if sys.version_info < (3, 10):
        raise Failed(f"needs Python 3.10 or newer, this is {sys.version.split()[0]}")
    if command not in ("run", "test", "stack"):
        print(__doc__)
        return 0 if command in ("help", "-h", "--help") else 4
    project()
    stacks(rest if command == "stack" else [])
    if command == "run":
        given = any(argument.startswith("--hetgpu-matrix") for argument in rest)
        return pytest([*([] if given else ["--hetgpu-matrix", DEFAULT_MATRIX]), *rest])
    # Options of the caller win: pytest takes the last `-m` and `-n`.
    return pytest(["tests", "-n", "logical", "--dist", "worksteal", "-m", QUICK, *rest]) if command == "test" else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as error:
        say(str(error))
        sys.exit(1)
