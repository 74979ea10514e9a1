"""Images that are built from a folder: what belongs to the build, and the name that says so.

Pure but for reading the folder; the container engine is not asked.
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
# Files of an image's folder that programs keep passwords and keys in. A key in PEM is text: redacted.
PRIVATE = re.compile(
    r"(?i)/(?:\.git|\.ssh|\.aws|\.azure|\.kube|\.docker|\.gnupg|\.config/gcloud)(?:/|$)"
    r"|/(?:\.env[^/]*|\.npmrc|\.yarnrc[^/]*|\.?netrc|_netrc|\.pypirc|\.pgpass|\.my\.cnf|\.htpasswd|\.git-credentials)$"
    r"|\.(?:key|p12|pfx|jks|keystore|kdbx|ppk|keytab)$"
)

_DIGITS = 12  # 48 bits: enough for every image a machine will ever see
_BASE = re.compile(r"^[ \t]*ARG[ \t]+BASE=(\S+)", re.IGNORECASE | re.MULTILINE)
_FROM = re.compile(r"^[ \t]*FROM[ \t]", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ContextFile:
    """One file, folder or link of a build context: its `path` below the folder, its `mode` as lstat says."""

    path: str
    mode: int


class _Expression(Protocol):
    """As much of a compiled pattern as is needed."""

    def fullmatch(self, text: str) -> object:
        """Something where all of the text fits, else None."""


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of a .dockerignore."""

    expression: _Expression
    keeps: bool

    def matches(self, path: str) -> bool:
        """Whether it speaks of `path`, or of a folder that `path` is in."""
        parts = path.split("/")
        return any(self.expression.fullmatch(_known("/".join(parts[:count]))) for count in range(len(parts), 0, -1))


def reference(folder: str, args: Mapping[str, str]) -> str:
    """`hetgpu/NAME:DIGEST`, the image that `folder` gives with these build arguments. Raises UsageError."""
    name = re.sub(r"[^a-z0-9]+", "-", Path(folder).name.lower()).strip("-") or "image"
    return f"hetgpu/{name}:{content_digest(folder, args)}"


def content_digest(folder: str, args: Mapping[str, str]) -> str:
    """12 hexadecimal digits: equal where names, modes, contents and arguments are, whenever they were written.

    Raises UsageError for a folder without a Dockerfile, or with something that cannot be read.
    """
    digest = hashlib.sha256()
    for name, value in sorted(args.items()):
        _add(digest, "arg", name, value)
    for entry in context(folder):
        _add(digest, stat.filemode(entry.mode), entry.path, _content(Path(folder, entry.path), entry.mode))
    return digest.hexdigest()[:_DIGITS]


def context(folder: str) -> tuple[ContextFile, ...]:
    """Return the files that a build of `folder` gets, sorted by path: all that its .dockerignore does not leave out.

    The Dockerfile and .dockerignore are always of it. Sockets, pipes and devices are not. Raises UsageError.
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
    """Whether the last pattern that speaks of `path` leaves it out."""
    if path in (DOCKERFILE, IGNORED):
        return False
    return next((not pattern.keeps for pattern in reversed(patterns) if pattern.matches(path)), False)


def base_of(folder: str, args: Mapping[str, str]) -> str:
    """Return the image that the build starts from, by its argument BASE or the Dockerfile's default; else ""."""
    if "BASE" in args:
        return args["BASE"]
    text = Path(folder, DOCKERFILE).read_text(encoding="utf-8", errors="replace")
    first = _FROM.search(text)
    found = _BASE.search(text[: first.start()] if first else text)
    return found[1].strip("\"'") if found else ""


def _add(digest: hashlib._Hash, *parts: str | bytes) -> None:
    """Each part with its length before it, so that no two lists of parts look the same."""
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
    """By RE2 where it is installed: a folder may be anybody's, and `**a**a**a` keeps `re` busy for ever."""
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
    """Replace halves of surrogate pairs, which stand for bytes of a name that are no UTF-8."""
    return text.encode(errors="replace").decode()


def _expression(pattern: str) -> str:
    """Translate one pattern to a regular expression; `[` without its `]` stands for itself."""
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
