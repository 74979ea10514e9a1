"""Images that are built from a folder: the files of the build, and a name with their digest.

Pure except for reading the folder; no container engine is involved.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.messages import show

DOCKERFILE = "Dockerfile"
IGNORED = ".dockerignore"
# Files of an image's folder that programs keep passwords and keys in. A key in PEM is text, which is redacted.
PRIVATE = re.compile(
    r"(?i)/(?:\.git|\.ssh|\.aws|\.azure|\.kube|\.docker|\.gnupg|\.config/gcloud)(?:/|$)"
    r"|/(?:\.env[^/]*|\.npmrc|\.yarnrc[^/]*|\.?netrc|_netrc|\.pypirc|\.pgpass|\.my\.cnf|\.htpasswd|\.git-credentials)$"
    r"|\.(?:key|p12|pfx|jks|keystore|kdbx|ppk|keytab)$"
)

_DIGITS = 12  # 48 bits: enough for all images of a machine
_BASE = re.compile(r"^[ \t]*ARG[ \t]+BASE=(\S+)", re.IGNORECASE | re.MULTILINE)
_FROM = re.compile(r"^[ \t]*FROM[ \t]", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ContextFile:
    """One file, folder or link of a build context: its `path` below the folder, its `mode` from lstat."""

    path: str
    mode: int


class _Expression(Protocol):
    """The used part of a compiled pattern."""

    def fullmatch(self, text: str) -> object:
        """Return an object if the pattern matches all of the text, else None."""


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of a .dockerignore."""

    expression: _Expression
    keeps: bool

    def matches(self, path: str) -> bool:
        """Return whether it applies to `path`, or to a folder that contains `path`."""
        parts = path.split("/")
        return any(self.expression.fullmatch(_known("/".join(parts[:count]))) for count in range(len(parts), 0, -1))


def reference(folder: str, args: Mapping[str, str]) -> str:
    """Return `hetgpu/NAME:DIGEST`, the image of `folder` with these build arguments. Raise UsageError as `context`."""
    name = re.sub(r"[^a-z0-9]+", "-", Path(folder).name.lower()).strip("-") or "image"
    return f"hetgpu/{name}:{content_digest(folder, args)}"


def content_digest(folder: str, args: Mapping[str, str]) -> str:
    """Return 12 hexadecimal digits: equal for equal names, modes, contents and arguments, regardless of file times.

    Raises:
        UsageError: The folder lacks a Dockerfile, or a file cannot be read.

    """
    digest = hashlib.sha256()
    for name, value in sorted(args.items()):
        _add(digest, "arg", name, value)
    for entry in context(folder):
        _add(digest, stat.filemode(entry.mode), entry.path, _content(Path(folder, entry.path), entry.mode))
    return digest.hexdigest()[:_DIGITS]


def context(folder: str) -> tuple[ContextFile, ...]:
    """Return the files that a build of `folder` gets, sorted by path: all that its .dockerignore does not exclude.

    The Dockerfile and .dockerignore are always included. Sockets, pipes and devices are not. Raise UsageError if the
    folder lacks a Dockerfile, or cannot be read.
    """
    root = Path(folder)
    try:
        if not (root / DOCKERFILE).is_file():
            raise UsageError(f"{root}: an image is built from a folder with a {DOCKERFILE}, which this is not")
        ignored = root / IGNORED
        patterns = ignore_patterns(ignored.read_text(encoding="utf-8-sig") if ignored.is_file() else "")
        return tuple(sorted(_walk(root, "", patterns), key=lambda entry: entry.path))
    except OSError as error:
        raise UsageError(f"{error.filename or root}: cannot be read for the image: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{ignored}: is not UTF-8") from error


def ignore_patterns(text: str) -> tuple[IgnorePattern, ...]:
    """Read the patterns of a .dockerignore: Go's filepath.Match with `**`, `!` and `#`, relative to the folder.

    https://docs.docker.com/build/concepts/context/#dockerignore-files
    """
    lines = (line.strip() for line in text.splitlines() if not line.startswith("#"))
    return tuple(pattern for line in lines if line for pattern in _pattern(line))


def excluded(path: str, patterns: Sequence[IgnorePattern]) -> bool:
    """Return whether the last pattern that applies to `path` excludes it."""
    if path in (DOCKERFILE, IGNORED):
        return False
    return next((not pattern.keeps for pattern in reversed(patterns) if pattern.matches(path)), False)


def base_of(folder: str, args: Mapping[str, str]) -> str:
    """Return the base image of the build, by its argument BASE or the Dockerfile's default; else ""."""
    if "BASE" in args:
        return args["BASE"]
    text = Path(folder, DOCKERFILE).read_text(encoding="utf-8", errors="replace")
    first = _FROM.search(text)
    found = _BASE.search(text[: first.start()] if first else text)
    return found[1].strip("\"'") if found else ""


def _add(digest: hashlib._Hash, *parts: str | bytes) -> None:
    """Add each part after its length, so that no two lists of parts give the same input."""
    for part in parts:
        data = part if isinstance(part, bytes) else os.fsencode(part)
        digest.update(b"%d:" % len(data) + data)


def _content(path: Path, mode: int) -> bytes:
    try:
        if stat.S_ISLNK(mode):
            return os.fsencode(path.readlink())
        if stat.S_ISDIR(mode):
            return b""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.digest()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read for the image: {error.strerror}") from error


def _walk(root: Path, below: str, patterns: Sequence[IgnorePattern]) -> Iterator[ContextFile]:
    for found in (root / below).iterdir():
        path = f"{below}{found.name}"
        mode = found.lstat().st_mode
        left_out = excluded(path, patterns)
        if not left_out and (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            yield ContextFile(path, mode)
        if stat.S_ISDIR(mode) and not (left_out and not any(pattern.keeps for pattern in patterns)):
            yield from _walk(root, f"{path}/", patterns)


def _pattern(line: str) -> Iterator[IgnorePattern]:
    keeps = line.startswith("!")
    clean = os.path.normpath("/" + line.removeprefix("!").strip()).lstrip("/")
    if clean:
        yield IgnorePattern(_compiled(clean), keeps)


def _compiled(pattern: str) -> _Expression:
    """Compile with RE2 if it is installed: a folder may be untrusted, and `**a**a**a` keeps `re` busy for ever."""
    expression = _expression(pattern)
    try:
        return _by_re2(expression) or re.compile(expression, re.DOTALL)
    except (re.error, ValueError) as error:
        raise UsageError(f"{IGNORED}: {show(pattern)} is no pattern: {error}") from None


def _by_re2(expression: str) -> _Expression | None:
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.dot_nl, options.log_errors = True, False
    try:
        return cast("_Expression", re2.compile(_known(expression), options))
    except re2.error as error:
        said = error.args[0] if error.args else ""
        raise ValueError(said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from None


def _known(text: str) -> str:
    """Replace halves of surrogate pairs, which represent the bytes of a name that are no UTF-8."""
    return text.encode(errors="replace").decode()


def _expression(pattern: str) -> str:
    """Translate one pattern to a regular expression; `[` without its `]` matches itself."""
    return "".join(_translated(match) for match in _TOKEN.finditer(pattern))


_TOKEN = re.compile(
    r"(?P<folders>\*\*/)|(?P<all>\*\*)|(?P<some>\*)|(?P<one>\?)|\[(?P<not>\^?)(?P<of>[^\]]+)\]|\\?(?P<is>.)"
)


def _translated(token: re.Match[str]) -> str:
    if token["folders"]:
        return "(?:.*/)?"
    if token["all"]:
        return ".*"
    if token["some"]:
        return "[^/]*"
    if token["one"]:
        return "[^/]"
    if token["of"]:
        inner = token["of"].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
        return f"[{token['not']}{inner}]"
    return re.escape(token["is"])
