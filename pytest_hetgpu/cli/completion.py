"""`hetgpu completion SHELL`: the script that completes the words of `hetgpu` in a shell, made by shtab."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from typing import Any

from pytest_hetgpu.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_FILES = ("FILE", "LOG", "A", "B")
_FOLDERS = ("DIR", "FOLDER", "RUN")
"""Metavariables of arguments that are paths."""


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell. Raise UsageError if shtab is not installed."""
    try:
        shtab: Any = importlib.import_module("shtab")
    except ImportError:
        raise UsageError("completion needs shtab: pip install 'pytest-hetgpu[completion]'") from None
    for action in _actions(parser):
        kind = "FILE" if action.metavar in _FILES else "DIRECTORY" if action.metavar in _FOLDERS else ""
        if kind:
            action.complete = getattr(shtab, kind)  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _actions(command)
