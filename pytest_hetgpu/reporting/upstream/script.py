"""`reproduce.sh`: one cell without this project, by docker, ssh and mpirun. Pure.

The lines are those of `--hetgpu-plan`. What they need lies beside the script: `programs/` (what ranks execute) and the
folders of images. Whatever happens, nothing is left behind.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.build_context import reference
from pytest_hetgpu.model.job import Command, Image, Job, Node
from pytest_hetgpu.planning.shell import script as pasting
from pytest_hetgpu.store.redaction.rules import REDACTED
from pytest_hetgpu.store.text import one_line

PROGRAMS = "programs"
IMAGES = "images"
_OURS = re.compile(rf"{re.escape(pasting.FOLDER)}-[A-Za-z0-9]{{8}}(?=/|$)")


def script(job: Job, key: str) -> str:
    """The script of a job; `key` is what it must end in."""
    return "\n".join(_lines(portable(job), key)) + "\n"


def portable(job: Job) -> Job:
    """The job without paths of this machine and run: relative to the script, or a fixed folder on nodes."""
    argv = tuple(anywhere(token) for token in job.command.argv)
    nodes = tuple(map(_node, job.nodes))
    launcher = _node(job.launcher) if job.launcher else None
    return replace(job, command=Command(argv, job.command.env), nodes=nodes, launcher=launcher)


def image_folders(job: Job) -> dict[str, str]:
    """Where each image that is built has its folder here, by its folder beside the script."""
    images = (node.image for node in job.all_nodes if node.image and node.image.folder and _unchanged(node.image))
    return {_beside(image.folder): image.folder for image in images}


def _unchanged(image: Image) -> bool:
    """Whether a folder is still what the image was built of: a stored job may name any folder of this machine."""
    try:
        return reference(image.folder, image.args) == image.reference
    except UsageError:
        return False


def _beside(folder: str) -> str:
    return f"{IMAGES}/{PurePosixPath(folder).name}"


def _node(node: Node) -> Node:
    if node.image is None or not node.image.folder:
        return node
    return replace(node, image=replace(node.image, folder=_beside(node.image.folder)))


def anywhere(token: str) -> str:
    """A token without this run's folder on nodes, and without the place where this project is installed."""
    token = _OURS.sub(pasting.FOLDER, token)
    return re.sub(r"[^\s=]*/pytest_hetgpu/remote(?=/|$)", f"./{PROGRAMS}", token)


def _lines(job: Job, key: str) -> Iterator[str]:
    means = _means(job) if job.is_multi_host else ""
    yield "#!/bin/sh"
    # A comment ends with its line: what is said in it must be one.
    yield one_line(f"# Reproduces {key or 'a failure'}: {job.label} of the matrix {job.matrix}.")
    yield f"# Needs a POSIX shell{means}, and the files beside it."
    if any(node.image and node.image.args for node in job.all_nodes):
        yield "# --build-arg and --network of docker build are of the site that this was found at: leave them out."
    if any(REDACTED in token for token in (*job.command.argv, *job.command.env.values())):
        yield f"# A secret was taken out: put yours where it says {REDACTED}."
    yield "set -eu"
    yield 'cd "$(dirname "$0")"'
    if job.is_multi_host:
        yield "clean() {"
        yield "  set +e"
        yield from (f"  {line} >/dev/null 2>&1" for line in pasting.cleaning(job))
        yield "}"
        yield "trap 'exit 130' INT TERM HUP"
        # Names of pods are the same for everybody: whose `create` is refused must not remove another's.
        yield from pasting.asking(job)
        yield "trap clean EXIT"
        yield from pasting.readiness(job, PROGRAMS)
    yield "status=0"
    yield f"timeout {max(1, round(job.timeout))} {_started(job)} || status=$?"
    yield 'echo "ended with exit code $status"'
    yield "exit $status"


def _means(job: Job) -> str:
    if any(node.hardware.pods for node in job.all_nodes):
        return ", kubectl"
    return ", docker" if any(node.container for node in job.all_nodes) else ", ssh"


def _started(job: Job) -> str:
    if job.is_multi_host:
        return pasting.started(job, job.command)
    variables = tuple(f"{name}={value}" for name, value in sorted(job.command.env.items()))
    return shlex.join(("env", *variables, *job.command.argv) if variables else job.command.argv)
