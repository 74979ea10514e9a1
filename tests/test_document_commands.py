"""Every command in the documents is parsed: options by the real parsers, files and extras by their names."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.document_blocks import ROOT, blocks, commands, split

COMMANDS = {command.name: command for command in commands()}
#: Programs that the documents only name; the project neither brings nor tests them.
OTHERS = {"jq", "kubectl", "sqlite3", "mkdocs", "sudo", "docker"}
LANGUAGES = {"sh", "console", "yaml", "python", "toml", "json"}
Parse = Callable[[tuple[str, ...]], None]


class Parsed(Exception):
    """The arguments of `hetgpu` were accepted."""


def parse_hetgpu(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse arguments by the parser of `hetgpu`, and run nothing."""
    real = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, given: list[str] | None = None) -> None:
        real(self, given)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    (script,) = entry_points(group="console_scripts", name="hetgpu")
    try:
        code = script.load()([*arguments])
    except Parsed:
        return
    raise AssertionError(f"hetgpu {' '.join(arguments)} ended with {code}")


def parse_pytest(arguments: tuple[str, ...], pytester: pytest.Pytester) -> None:
    """Parse options by the parser of pytest with the plugin; shipped matrices and inventories must exist."""
    config = pytester.parseconfig(*arguments)
    for path in (*(config.getoption("hetgpu_matrix") or ()), config.getoption("hetgpu_inventory") or ""):
        assert not str(path).startswith("matrices/") or (ROOT / path).is_file(), path


def check_extras(arguments: tuple[str, ...]) -> None:
    """Check that the extras in `pip install` exist."""
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE))
    named = [name for word in arguments for name in re.findall(r"pytest-hetgpu\[([\w,]+)\]", word)]
    assert arguments[0] == "install"
    assert {one for name in named for one in name.split(",")} <= extras


@pytest.fixture
def parse(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Parse:
    """Parse one command, whatever its program is."""

    def parse_one(argv: tuple[str, ...]) -> None:
        program, arguments = argv[0].removeprefix(".venv/bin/"), argv[1:]
        if program == "pytest":
            parse_pytest(arguments, pytester)
        elif program == "hetgpu":
            parse_hetgpu(arguments, monkeypatch)
        elif program == "pip":
            check_extras(arguments)
        elif program in ("python", "python3"):
            parse_script(*arguments)
        else:
            assert program in OTHERS or (ROOT / program).is_file(), f"unknown program {program}"

    def parse_script(script: str, *rest: str) -> None:
        text = (ROOT / script).read_text(encoding="utf-8")
        if script == "bootstrap.py":
            assert rest[0] in ("run", "test", "stack")
            if rest[0] != "stack":
                parse_one(("pytest", *rest[1:]))
        elif script.endswith(("/cluster.py", "/lab.py")):
            parse_one(rest[1:] if rest[0] == "up" else rest)
        else:
            assert [word for word in rest if word.startswith("--") and f'"{word}"' not in text] == []

    return parse_one


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_parsed(name: str, parse: Parse) -> None:
    parse(COMMANDS[name].argv)


@pytest.mark.parametrize(
    "line", ["pytest --hetgpu-no-such", "hetgpu explain --no-such", "python no_such.py", "no-such"]
)
def test_a_wrong_command_is_refused(line: str, parse: Parse) -> None:
    with pytest.raises((pytest.UsageError, AssertionError, FileNotFoundError)):
        parse(tuple(line.split()))


def test_every_block_has_a_language() -> None:
    assert {block.language for block in blocks()} <= LANGUAGES
    assert [block.place for block in blocks() if block.language not in LANGUAGES] == []


def test_shell_commands_are_found() -> None:
    programs = {command.program for command in COMMANDS.values()}
    assert programs >= {"pytest", "hetgpu", "python3", "pip"}
    assert len(COMMANDS) > 40


def test_no_command_hides_in_an_indented_block() -> None:
    pages = {command.place.partition(":")[0] for command in COMMANDS.values()}
    for page in pages:
        text = re.sub(r"^( *)```.*?^\1```$", "", Path(ROOT, page).read_text(), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"^ {4,}(?:\$ )?(?:pytest|hetgpu|pip|kubectl) .*", text, re.MULTILINE) == [], page


def test_a_line_is_split_at_its_operators() -> None:
    found = [("a", "b"), ("c", "d e"), ("g",)]
    assert list(split("A=1 a b | c 'd e' > f && g # h")) == found
