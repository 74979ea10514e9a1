"""The launcher of a node, by its own answer: `mpirun` is an alternative on Debian, whatever the stack."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.extensions.runtimes.base import RemoteNode
from pytest_hetgpu.extensions.stacks.base import families, family_of
from pytest_hetgpu.model.facts import Facts, found
from pytest_hetgpu.model.job import Node, Stack

PROGRAM, VENDOR, VERSION = "launcher", "launcher.vendor", "launcher.version"
"""Facts about the launcher of a node's stack: its program, its MPI, and the version."""


def launcher_facts(node: Node, member: RemoteNode) -> Facts:
    """Return the facts about the launcher that fits the stack of a node best; none for a stack that is known by files.

    The best is of the stack's MPI and major version. If there is none, it is the one of the plain name, `mpirun`.
    """
    stack = node.stack
    if stack is None or "." in stack.version or not family_of(stack.name).launcher_version:
        return {}
    answers = list(_answers(stack, member))
    fitting = [one for one in answers if one[1] == stack.vendor and _has_major(one[2], stack)]
    chosen = next(iter((*fitting, *(one for one in answers if one[1] == stack.vendor), *reversed(answers))), None)
    return dict(zip((PROGRAM, VENDOR, VERSION), map(found, chosen), strict=True)) if chosen else {}


def _answers(stack: Stack, member: RemoteNode) -> Iterator[tuple[str, str, str]]:
    """Yield program, MPI and version of each launcher of the stack's names that the node has."""
    folder = f"{stack.prefix}/bin/" if stack.prefix else ""
    for name in family_of(stack.name).launchers:
        try:
            answer = member.exec((f"{folder}{name}", "--version"))
        except HetgpuError:
            continue
        printed = answer.stdout.decode(errors="replace")
        for family in families():
            if version := family.version_of_launcher(printed):
                yield f"{folder}{name}", family.vendor, version


def _has_major(version: str, stack: Stack) -> bool:
    return stack.major in (0, int(version.partition(".")[0]))
