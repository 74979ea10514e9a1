"""The two forms of a job's command: one shows the variables of ranks to users, one names files with them. Pure.

Every user of a machine can read the command lines of its processes, so no value of a variable may be in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.launchers.base import Launcher, LaunchRequest
from pytest_hetgpu.model.job import Command, RankContext

READER = "with_variables.py"


def reader(interpreter: str, programs: str) -> tuple[str, ...]:
    """Return the tokens that start a program with the variables of a file."""
    # -I -S: it starts in 10 ms, and no variable of the node changes it.
    return (interpreter, "-I", "-S", f"{programs}/{READER}")


def command(launcher: Launcher, start: LaunchRequest, *, on_nodes: bool) -> Command:
    """Return the command in both forms.

    A file has a name relative to the temporary folder of the command. On nodes (`on_nodes`) it has an absolute path
    beside the folder of programs, because srun gives ranks the TMPDIR of another node.
    """
    shown = launcher.command(start)
    files: dict[str, Mapping[str, str]] = {}
    contexts = [_with_file(context, files, on_nodes=on_nodes) for context in start.contexts]
    if not files:
        return shown
    return replace(shown, private_argv=launcher.command(replace(start, contexts=contexts)).argv, variables=files)


def _with_file(context: RankContext, files: dict[str, Mapping[str, str]], *, on_nodes: bool) -> RankContext:
    """Return a context that reads its variables from a file of `files`. Contexts with equal variables share it."""
    if not context.env:
        return context
    name = next((name for name, env in files.items() if env == context.env), f"variables-{len(files)}")
    files[name] = context.env
    return replace(context, file=f"{context.reader[-1].rpartition('/programs/')[0]}/{name}" if on_nodes else name)
