"""Describes a job to a reader who is new to this project and its programs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.store.run_summary import benchmark_program
from pytest_hetgpu.store.text import one_line

_LONGEST = 1200
_SETTING = re.compile(
    r"(?:UCX|UCC|NCCL|RCCL|OMPI|PRTE|PMIX|FI|MPICH|MPIR|I_MPI|TORCH|GLOO|HSA|HIP|CUDA)_\w+=.*", re.DOTALL
)


def describe_job(job: Job) -> str:
    """Describe a job: `2 processes on 2 nodes run guarded_send.py. ...`, with the docstring of the program."""
    ranks = sum(node.ranks for node in job.nodes)
    name = benchmark_program(job.command.argv)
    runs = f"run `{name}`" if name else "take part"
    prose = program_description(name)
    return f"{ranks} process{'es' * (ranks != 1)} on {_places(job)} {runs}.{f' What it does: {prose}' if prose else ''}"


def _places(job: Job) -> str:
    """Return `2 nodes`, `2 containers of one host`, or `one host` for processes of one machine."""
    many, hosts = len(job.nodes), len({node.host for node in job.nodes})
    if many == 1:
        return "one node"
    if hosts > 1 or any(runtime_of(node.hardware.runtime).schedules for node in job.nodes):
        return f"{many} nodes"
    contained = any(node.container for node in job.nodes)
    return f"{many} containers of one host" if contained else "one host"


def program_description(name: str) -> str:
    """Return the prose of a rank program's docstring, in one line; "" if the program is not ours."""
    place = REMOTE / PurePosixPath(name).name
    if not name.endswith(".py") or not place.is_file():
        return ""
    text = ast.get_docstring(ast.parse(place.read_text(encoding="utf-8"))) or ""
    prose = (part for part in text.split("\n\n") if not part.startswith(" "))
    return one_line(" ".join(prose), _LONGEST)


def library_settings(argv: Sequence[str]) -> Iterator[str]:
    """Yield the library variables that a command line sets, as maintainers ask for them."""
    yield from dict.fromkeys(one_line(token, 200) for token in argv if _SETTING.fullmatch(token))
