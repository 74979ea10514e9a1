"""Text of unknown origin, made fit for a report: without terminal codes, valid in XML, in bounded lines."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.store.redaction.redact import redact

TAIL_LINES = 40
TAIL_BYTES = 8 * 1024
_WINDOW = 2 * TAIL_BYTES

_TERMINAL = lazy(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_NEWLINES = lazy(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
# C0 and C1 controls, halves of surrogate pairs, non-characters (XML 1.0, production 2), and the marks that let a line
# show other text than it holds (bidirectional overrides).
_UNFIT = lazy("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


_CONTROLS = lazy("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """Remove terminal codes, control characters and all that XML 1.0 cannot hold; turn line ends into newlines."""
    if text.isascii() and text.isprintable():
        return text
    return _UNFIT.sub("", _NEWLINES.sub("\n", _TERMINAL.sub("", text)))


def escape_controls(text: str) -> str:
    """Escape control characters as Python writes them. Keep all others."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


# Commands that CI servers take from the output of a job. GitHub and Forgejo take `::` at the beginning of a line, after
# blanks too (`ActionCommand.TryParseV2`), and `##[` anywhere; Azure and TeamCity `##vso[` and `##teamcity[`. Buildkite
# makes groups of `---`, `+++`, `~~~` and `^^^`, GitLab and Travis of their own words.
_CI_COMMANDS = lazy(
    r"(?m)^([^\S\n]*(?::(?=:)|-(?=--(?:\s|$))|\+(?=\+\+(?:\s|$))|~(?=~~(?:\s|$))|\^(?=\^\^(?:\s|$))))"
    r"|(?i:(##)(?=\w*\[))|(section_)(?=(?:start|end):)|(travis_)(?=(?:fold|time):)"
)
GAP = "\u200b"
"""Zero-width space: invisible, and the end of a command, a mention or a reference."""


def printable(text: str) -> str:
    """Escape control characters, and disable what a CI server takes for a command. All that is printed passes here."""
    return without_commands(escape_controls(text))


def without_commands(text: str) -> str:
    """Disable what a CI server takes for a command."""
    return _CI_COMMANDS.sub(rf"\g<0>{GAP}", text)


def printable_json(text: str) -> str:
    """Return a text in JSON, the same data, as `printable` leaves it."""
    return _CI_COMMANDS.sub(lambda found: f"{found[0][:-1]}\\u{ord(found[0][-1]):04x}", text)


def one_line(text: str, limit: int = 300) -> str:
    """Clean and redact a text, and collapse white space; cut it after `limit` characters."""
    line = " ".join(redact(clean(text)).split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def tail(path: Path) -> str:
    """Return the last 40 lines of a log, at most 8 KiB, cleaned and redacted. Return "" if there is no such file.

    Only the last 16 KiB of the file are read. A private key that starts before the last lines is still recognised.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _WINDOW))
            data = file.read(_WINDOW)
    except OSError:
        return ""
    text = clean(data.decode("utf-8", "replace"))
    if "PRIVATE KEY" in text:
        text = redact(text)
    kept = redact("\n".join(text.rstrip().split("\n")[-TAIL_LINES:])).encode("utf-8")
    return kept[-TAIL_BYTES:].decode("utf-8", "ignore")


def display_path(path: Path) -> str:
    """Return a path relative to the current directory if it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


_MARKS = re.compile(r"[\\`*\[\]<>|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# A heading, an item of a list or a rule, if the text begins a line.
_BLOCK = re.compile(r"(?:#{1,6}|[-+])(?=\s)|\d{1,9}(?=[.)](?:\s|$))|(?=[-=]{2,}$)")
_COMMAND = re.compile(r"(\s*)/(?=[A-Za-z_])")
# What precedes a mention or a reference in the alternation is left as it is.
_ACTIVE = re.compile(
    r"(?P<kept>\\[\\`]|(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    rf"|(?<![A-Za-z0-9])@(?=[^\s{GAP}])"
    r"|[#!&%](?=\d)"
    r"|(?<![A-Za-z0-9])(?:GH|gh)-(?=\d)"
)
_ADDRESS = re.compile(r"(?i:\bwww(?=\.)|(?<=[a-z]):(?=//))")


def escape_markdown(text: str, limit: int = 300) -> str:
    """Escape a text, as one line, for Markdown: it has neither markup nor links, and names no person and no issue."""
    line = _MARKS.sub(r"\\\g<0>", one_line(text, limit))
    block = _BLOCK.match(line)
    if block:
        at = block.end() if line[0].isdecimal() else 0
        line = f"{line[:at]}\\{line[at:]}"
    return neutral_line(_ADDRESS.sub(rf"\g<0>{GAP}", line))


def neutral_line(line: str) -> str:
    """Disable mentions, references and commands in a line of Markdown. Code is left as it is.

    GitHub and GitLab act on text: `@name` notifies people, `#12` leaves a note in another issue, and a line `/close` is
    a command of GitLab.
    """
    line = _ACTIVE.sub(lambda found: found[0] if found["kept"] else f"{found[0]}{GAP}", line)
    return _COMMAND.sub(r"\1\\/", line, count=1) if _COMMAND.match(line) else line
