"""The place of a history: an SQLite file, or a PostgreSQL database for several machines."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pytest_hetgpu.errors import UsageError

VARIABLE = "HETGPU_HISTORY"
_FORM = "postgresql://USER@HOST/DATABASE"
_SCHEMES = ("postgresql", "postgres")
_URL = re.compile(r"(?i)[a-z][a-z0-9+.-]+://|postgres(?:ql)?:")
_PASSWORDS = ("password", "sslpassword")
_PACKAGES = ("sqlalchemy", "psycopg")


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A PostgreSQL database. Its text is the address alone, so messages and reports have no password."""

    #: `postgresql://USER@HOST:PORT/DATABASE?OPTIONS`, parts as the user wrote them
    address: str
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.address

    @property
    def secrets(self) -> Mapping[str, str]:
        """The password under a secret name, for redaction."""
        return {"PASSWORD": self.password} if self.password else {}

    def require_packages(self) -> None:
        """Raise UsageError if a package that this place needs is not installed."""
        missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(
                f"the history {self} needs {' and '.join(missing)}, not installed here: "
                "pip install 'pytest-hetgpu[postgresql]'"
            )


HistoryPlace = Path | DatabaseUrl


def is_url(text: str) -> bool:
    """Return whether a text is meant as a URL, and not as a path."""
    return _URL.match(text) is not None


def parse_place(text: str, source: str, environ: Mapping[str, str] = os.environ) -> HistoryPlace:
    """Return the place that an option, an ini key or a variable (`source`) names.

    Only the variable may hold a password. A URL without one takes the password of the variable, if that has the same
    address. Raises UsageError, which never quotes the URL: it may hold a password.
    """
    if not is_url(text):
        return Path(text)
    place = _parse_url(text, source)
    if place.password and source != VARIABLE:
        raise UsageError(
            f"{source}: a password does not belong here, where others can read it: "
            f"set {VARIABLE} to the whole URL, or add the password to ~/.pgpass"
        )
    if not place.password and source != VARIABLE and is_url(environ.get(VARIABLE, "")):
        with suppress(UsageError):
            known = _parse_url(environ[VARIABLE], VARIABLE)
            return known if known.address == place.address else place
    return place


def _parse_url(text: str, source: str) -> DatabaseUrl:
    try:
        parts = urlsplit(text)
        valid = parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(f"{source}: the URL is invalid: {_FORM}, special characters as %XX")
    if parts.scheme not in _SCHEMES:
        raise UsageError(f"{source}: {parts.scheme}: is not supported: give a file, or {_FORM}")
    if not _is_plain(parts):
        raise UsageError(f"{source}: the URL names no database: {_FORM}, special characters as %XX")
    hidden = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if name in _PASSWORDS]
    if hidden:
        form = _FORM.replace("USER", "USER:PASSWORD")
        raise UsageError(f"{source}: {hidden[0]} is not an option of the URL: set {VARIABLE} to {form}")
    login, at, server = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options = f"?{parts.query}" if parts.query else ""
    return DatabaseUrl(f"postgresql://{user}{at}{server}{parts.path}{options}", unquote(password))


def _is_plain(parts: SplitResult) -> bool:
    """Return whether the path is one name. A password with an unescaped character ends in the path or behind it."""
    return re.fullmatch(r"/[^/@:]+", parts.path) is not None and not parts.fragment and "@" not in parts.query
