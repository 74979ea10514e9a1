"""`reproduce.sh`: one cell without this project, by docker, ssh and mpirun. Pure.

The lines are those of `--hetgpu-plan`. The files that they need lie beside the script: `programs/` (the programs of
ranks) and the folders of images. The script always cleans up.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes.containers.build_context import reference
from pytest_hetgpu.extensions.runtimes.lookup import by_runtime
from pytest_hetgpu.model.job import Command, Image, Job, Node
from pytest_hetgpu.planning.shell import script as shell_script
from pytest_hetgpu.store.redaction.rules import REDACTED
from pytest_hetgpu.store.text import one_line

PROGRAMS = "programs"
IMAGES = "images"
_RUN_FOLDER = re.compile(rf"{re.escape(shell_script.FOLDER)}-[A-Za-z0-9]{{8}}(?=/|$)")


def render_script(job: Job, key: str) -> str:
    """Render the script of a job; `key` is the expected signature."""
    return "\n".join(_lines(portable_job(job), key)) + "\n"


def portable_job(job: Job) -> Job:
    """Replace paths of this machine and run by paths relative to the script, or by a fixed folder on nodes."""
    argv = tuple(portable_token(token) for token in job.command.argv)
    nodes = tuple(map(_portable_node, job.nodes))
    launcher = _portable_node(job.launcher) if job.launcher else None
    return replace(job, command=Command(argv, job.command.env), nodes=nodes, launcher=launcher)


def image_folders(job: Job) -> dict[str, str]:
    """Return the local folder of each image that is built, by its folder beside the script."""
    images = (node.image for node in job.all_nodes if node.image and node.image.folder and _is_unchanged(node.image))
    return {_relative_folder(image.folder): image.folder for image in images}


def _is_unchanged(image: Image) -> bool:
    """Return whether a folder still matches the built image: a stored job may name any folder of this machine."""
    try:
        return reference(image.folder, image.args) == image.reference
    except UsageError:
        return False


def _relative_folder(folder: str) -> str:
    return f"{IMAGES}/{PurePosixPath(folder).name}"


def _portable_node(node: Node) -> Node:
    if node.image is None or not node.image.folder:
        return node
    return replace(node, image=replace(node.image, folder=_relative_folder(node.image.folder)))


def portable_token(token: str) -> str:
    """Replace this run's folder on nodes, and the place of this installation, in a token."""
    token = _RUN_FOLDER.sub(shell_script.FOLDER, token)
    # Runs of older versions have the folder `programs`.
    return re.sub(r"[^\s=]*/pytest_hetgpu/(?:remote|programs)(?=/|$)", f"./{PROGRAMS}", token)


def _lines(job: Job, key: str) -> Iterator[str]:
    means = _required_tools(job) if job.is_multi_host else ""
    yield "#!/bin/sh"
    # The text of a comment must be one line.
    yield one_line(f"# Reproduces {key or 'a failure'}: {job.label} of the matrix {job.matrix}.")
    yield f"# Needs a POSIX shell{means}, and the files beside it."
    for runtime, nodes in by_runtime(job.all_nodes):
        if runtime.build_note and any(node.image and node.image.args for node in nodes):
            yield runtime.build_note
    if any(REDACTED in token for token in (*job.command.argv, *job.command.env.values())):
        yield f"# A secret was taken out: put yours in place of {REDACTED}."
    yield "set -eu"
    yield 'cd "$(dirname "$0")"'
    if job.is_multi_host:
        yield "clean() {"
        yield "  set +e"
        yield from (f"  {line} >/dev/null 2>&1" for line in shell_script.cleaning(job))
        yield "}"
        yield "trap 'exit 130' INT TERM HUP"
        # All users have the same pod names: a script whose `create` is refused must not remove the pods of another.
        yield from shell_script.allocate(job)
        yield "trap clean EXIT"
        yield from shell_script.prepare(job, PROGRAMS)
    yield "status=0"
    yield f"timeout {max(1, round(job.timeout))} {_start_command(job)} || status=$?"
    yield 'echo "ended with exit code $status"'
    yield "exit $status"


def _required_tools(job: Job) -> str:
    clients = [runtime.client for runtime, _ in by_runtime(job.all_nodes)]
    return f", {next((client for client in clients if client != 'ssh'), 'ssh')}"


def _start_command(job: Job) -> str:
    if job.is_multi_host:
        return shell_script.started(job, job.command)
    variables = tuple(f"{name}={value}" for name, value in sorted(job.command.env.items()))
    return shlex.join(("env", *variables, *job.command.argv) if variables else job.command.argv)
