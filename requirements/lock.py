#!/usr/bin/env python3
"""Locks what is installed: every package in one version, with the hashes of all its files, for every supported Python.

    python3 requirements/lock.py            write the locks anew: the newest versions that pyproject.toml allows
    python3 requirements/lock.py --keep     only what pyproject.toml or a stack changed; all else stays as it is

`project.txt` is what tests and checks need, `runtime.txt` what a user of the wheel gets, `docs.txt` what builds the
documentation, `stacks/NAME.txt` a stack's.
Stacks with PyTorch have none: its files differ from index to index, and with them their hashes.
Needs uv (https://docs.astral.sh/uv), and this project importable: .venv/bin/python requirements/lock.py
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OLDEST = "3.10"
# What builds this project in place beside its own `build-system.requires`.
EDITABLE = "editables>=0.5"


def inputs() -> dict[str, tuple[str, ...]]:
    """Return the requirements of each lock by its path in this folder."""
    told = pyproject()
    project = told["project"]
    runtime = tuple(project["dependencies"])
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    built = (*told["build-system"]["requires"], EDITABLE)
    locks = {"project.txt": (*runtime, *extra("dev", extras), *built), "runtime.txt": runtime}
    locks["docs.txt"] = tuple(extra("docs", extras))
    return locks | {f"stacks/{name}.txt": pins for name, pins in stacks()}


def pyproject() -> dict[str, Any]:
    """pyproject.toml; Python 3.10 has no module for it."""
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib  # type: ignore[no-redef,import-not-found,unused-ignore]
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")))


def extra(name: str, extras: Mapping[str, list[str]]) -> Iterator[str]:
    """Return the requirements of an extra, with those of our own extras in it."""
    for requirement in extras[name]:
        own = re.fullmatch(r"pytest-hetgpu\[([\w,]+)\]", requirement)
        if own:
            for other in own[1].split(","):
                yield from extra(other, extras)
        else:
            yield requirement


def stacks() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the stacks of wheels without PyTorch."""
    from pytest_hetgpu.extensions.stacks.base import family_of, stack_names

    for name in stack_names():
        release = family_of(name).releases[name]
        if release.requirements and not release.torch:
            yield name, release.requirements


def digest(requirements: Iterable[str]) -> str:
    """Stands in a lock's first line for what it was made of."""
    return hashlib.sha256("\n".join(sorted(requirements)).encode()).hexdigest()


def head(requirements: Iterable[str]) -> str:
    """Return the first line of a lock."""
    return f"# Made by requirements/lock.py of requirements with the digest {digest(requirements)}"


def lock(path: Path, requirements: tuple[str, ...], uv: str, *, keep: bool) -> None:
    """Write one lock."""
    path.parent.mkdir(exist_ok=True)
    argv = [uv, "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header", "--no-annotate"]
    argv += ["--python-version", OLDEST, *([] if keep else ["--upgrade"]), "--output-file", str(path), "-"]
    subprocess.run(argv, input="\n".join(requirements), text=True, check=True, cwd=ROOT)
    path.write_text(f"{head(requirements)}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write all locks."""
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None or set(arguments) - {"--keep"}:
        print(__doc__ if uv else "lock.py: there is no uv: pip install uv", file=sys.stderr)
        return 4
    for name, requirements in inputs().items():
        lock(HERE / name, requirements, uv, keep="--keep" in arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
