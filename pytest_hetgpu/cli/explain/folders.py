"""Logs in a folder: plain text files, by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pytest_hetgpu.cli.explain.encodings import detect_encoding
from pytest_hetgpu.cli.explain.packed import HEAD, MOST_LOGS, packed_as
from pytest_hetgpu.errors import UsageError

# Suffixes of sources, settings and pages, which lie beside logs.
_NO_LOGS = frozenset(
    (
        *(".py", ".pyi", ".sh", ".bash", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".hip", ".f", ".f90", ".rs"),
        *(".go", ".java", ".js", ".ts", ".css", ".lua", ".pl", ".r", ".jl", ".patch", ".diff", ".yaml", ".yml"),
        *(".toml", ".ini", ".cfg", ".conf", ".xml", ".html", ".svg", ".md", ".rst", ".tex", ".bib", ".ipynb"),
        *(".cmake", ".lock", ".mk", ".json", ".csv"),
    )
)
_NO_LOG_NAMES = frozenset(("makefile", "license", "readme", "cmakelists.txt", "requirements.txt"))
_FEW = 0.1


def logs_in(folder: Path) -> Iterator[Path]:
    """Yield the logs below a folder, sorted by path; only the cells' logs of a run's folder.

    Links and hidden files are left out: a folder that was received from others may link to anything. Raise UsageError
    for a folder without logs, and for one with more than MOST_LOGS.
    """
    count = 0
    for path in _cells(folder) or _files(folder):
        with path.open("rb") as log:
            head = log.read(HEAD)
        if not is_log(path.name, head):
            continue
        if (count := count + 1) > MOST_LOGS:
            raise UsageError(f"{folder}: holds more than {MOST_LOGS:,} logs")
        yield path
    if not count:
        raise UsageError(f"{folder}: is a directory without a log")


def is_log(name: str, head: bytes) -> bool:
    """Return whether a file is a log, plain or packed, by its name and its first HEAD bytes; an empty file is none."""
    base = PurePosixPath(name)
    hidden = any((part.startswith(".") and part.strip(".")) or part == "__MACOSX" for part in base.parts)
    if hidden or base.suffix.lower() in _NO_LOGS or base.name.lower() in _NO_LOG_NAMES:
        return False
    return bool(head) and (packed_as(head) is not None or detect_encoding(head) is not None or _is_text(head))


def _is_text(head: bytes) -> bool:
    text = head.decode(errors="replace")
    odd = sum(character == "\ufffd" or (character < " " and character not in "\t\n\r\x1b\b\f") for character in text)
    return odd <= len(text) * _FEW


def _cells(run: Path) -> list[Path]:
    """Return the output of each cell of a run; nothing for any other folder."""
    if not (run / "journal").is_dir():
        return []
    return sorted(path for path in (run / "scenarios").glob("*/output.log") if stat.S_ISREG(path.lstat().st_mode))


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(place, name) for name in sorted(names)):
            if stat.S_ISREG(path.lstat().st_mode):
                yield path
