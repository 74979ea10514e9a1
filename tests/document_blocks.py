"""Fenced blocks of README.md and docs/, and the commands in their shell blocks."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SNIPPET = re.compile(r'^ *--8<-- "([^"]+)"$', re.MULTILINE)
#: Tokens that end a command: pipes, lists and redirections.
OPERATOR = re.compile(r"[|&;<>]+")


class Block(NamedTuple):
    """A fenced block: `place` is FILE:LINE, `text` has its snippets in place."""

    place: str
    language: str
    text: str


class Command(NamedTuple):
    """One command of a shell block, without redirections and variables."""

    place: str
    argv: tuple[str, ...]

    @property
    def program(self) -> str:
        """Return the name of the program; `python -m pytest` is not used in documents."""
        return self.argv[0].removeprefix(".venv/bin/")

    @property
    def name(self) -> str:
        """Return the name of its test."""
        return f"{self.place}: {' '.join(' '.join(self.argv).split())[:80]}"


def blocks() -> Iterator[Block]:
    """Yield the fenced blocks of all pages."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            body = SNIPPET.sub(lambda one: (ROOT / one[1]).read_text(encoding="utf-8").rstrip(), found[3])
            yield Block(f"{path.relative_to(ROOT)}:{line}", found[2], textwrap.dedent(body))


def commands() -> Iterator[Command]:
    """Yield the commands of all shell blocks; of a `console` block only lines after a prompt."""
    for block in blocks():
        if block.language not in ("sh", "console"):
            continue
        lines = block.text.replace("\\\n", " ").splitlines()
        if block.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in whole(lines):
            yield from (Command(block.place, argv) for argv in split(line))


def whole(lines: list[str]) -> Iterator[str]:
    """Join lines until their quotes are closed."""
    text = ""
    for line in lines:
        text = f"{text} {line}" if text else line
        if text.count('"') % 2 == 0:
            yield text
            text = ""


def split(line: str) -> Iterator[tuple[str, ...]]:
    """Split a shell line at its operators, and drop comments, variables and the targets of redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    argv: list[str] = []
    target = False
    for token in (*lexer, ";"):
        if not OPERATOR.fullmatch(token):
            if not target and (argv or not re.fullmatch(r"\w+=.*", token)):
                argv.append(token)
            target = False
            continue
        target = token in (">", ">>", "<")
        if argv and not target:
            yield tuple(argv)
            argv = []
