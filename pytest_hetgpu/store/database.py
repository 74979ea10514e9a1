"""The database of the history: an SQLite file, or `postgresql.py`. Several sessions may write to it at once.

None of its data is ever lost.

`user_version` is the number of `MIGRATIONS` applied to the file. An older file is migrated, and a newer one is refused
and left alone. A damaged file is renamed.

The file uses SQLite's rollback journal, not WAL. WAL needs memory that all writers share, and hosts with one network
file system have none. A copy of the first file without its WAL would also lack data.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pytest_hetgpu.errors import HistoryError, NoHistory
from pytest_hetgpu.store import history_schema
from pytest_hetgpu.store.files import READABLE, make_folder

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

T = TypeVar("T")

BUSY_TIMEOUT = 30.0
"""Seconds that a session waits for other writers."""
SECONDS = 60.0
"""The longest time of all queries of one read."""
MOST_ROWS = 5_000_000
"""Rows of one query."""
LARGEST_VALUE = 64 << 20
"""Bytes of one value, or of one row."""
LARGEST_FILE = 4 << 30
"""Bytes of a history that is copied."""
_INSTRUCTIONS = 10_000  # of SQLite's machine between two looks at the clock: a millisecond
_MESSAGES = (
    ("locked", "another process has been writing for too long"),
    ("unable to open", "it cannot be opened"),
    ("readonly", "it may not be written to"),
    ("is full", "the disk is full"),
    ("interrupted", f"reading it takes longer than {SECONDS:g} s"),
    ("too big", "it holds a value that is too large"),
)
_BESIDE = ("-journal", "-wal", "-shm")


Row = Mapping[str, Any]
"""A row of a result: values by the name of the column."""


class Database(Protocol):
    """An open history. Statements are common to SQLite and PostgreSQL, and name their values: `:run`."""

    def rows(self, query: str, **values: object) -> Iterable[Row]:
        """Return the rows of a query by column."""

    def tuples(self, query: str, **values: object) -> Iterable[tuple[Any, ...]]:
        """Return the rows of a query as tuples."""

    def change(self, statement: str, *rows: Mapping[str, object]) -> None:
        """Run a statement once for each row of values, or once if there are none."""


@dataclass(frozen=True, slots=True)
class _SqliteDatabase:
    db: sqlite3.Connection

    def rows(self, query: str, **values: object) -> Iterable[Row]:
        return _limit_rows(self.db.execute(query, values))

    def tuples(self, query: str, **values: object) -> Iterable[tuple[Any, ...]]:
        cursor = self.db.cursor()
        cursor.row_factory = None
        return _limit_rows(cursor.execute(query, values))

    def change(self, statement: str, *rows: Mapping[str, object]) -> None:
        self.db.executemany(statement, rows or ({},))


def _distrust(db: sqlite3.Connection) -> None:
    """Let nothing in the file's schema have an effect outside the file, and bound its values."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    if hasattr(db, "setlimit"):  # from Python 3.11 on
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)


def _limit_time(db: sqlite3.Connection) -> None:
    """Interrupt queries that take longer than `SECONDS` together."""
    deadline = time.monotonic() + SECONDS
    db.set_progress_handler(lambda: time.monotonic() > deadline, _INSTRUCTIONS)


def _limit_rows(rows: Iterable[T]) -> Iterator[T]:
    """Yield rows. Raises HistoryError for too many."""
    for count, row in enumerate(rows):
        if count >= MOST_ROWS:
            raise HistoryError(f"the history holds more than {MOST_ROWS:,} rows of one kind; it is not read")
        yield row


class _DamagedFileError(Exception):
    """A file that is no SQLite database, or a broken one; the argument is SQLite's message."""


def write(place: HistoryPlace, change: Callable[[Database], object]) -> str:
    """Apply a change in one transaction. Return "", or a sentence on a damaged file. Raises HistoryError."""
    if isinstance(place, Path):
        return _write_file(place, change)
    with _needing_packages(place):
        from pytest_hetgpu.store import postgresql
    postgresql.write(place, change)
    return ""


@contextmanager
def connect(place: HistoryPlace) -> Iterator[Database]:
    """Open the history for reading. Raises NoHistory if there is none, HistoryError if it cannot be read."""
    if isinstance(place, Path):
        with _connect_file(place) as db:
            yield db
    else:
        with _needing_packages(place):
            from pytest_hetgpu.store import postgresql
        with postgresql.connect(place) as database:
            yield database


@contextmanager
def _needing_packages(place: HistoryPlace) -> Iterator[None]:
    """Turn the import error of a package that only databases need into HistoryError."""
    try:
        yield
    except ImportError as error:
        missing = error.name or "libpq"
        raise HistoryError(f"{place} needs {missing}: pip install 'pytest-hetgpu[postgresql]'") from None


def _write_file(path: Path, change: Callable[[Database], object]) -> str:
    with _history_errors(path):
        with contextlib.suppress(FileExistsError):
            make_folder(path.parent)
        if path.exists() and not path.is_file():
            raise HistoryError(f"{path} is not a file")
        # SQLite would take the mode from the umask; it gives its own journals the mode of this file.
        with contextlib.suppress(OSError):  # SQLite reports the error
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, READABLE))
    with contextlib.suppress(_DamagedFileError):
        _write(path, change)
        return ""
    with _folder_lock(path.parent):
        # Another session may have found the damage too, and renamed the file already.
        try:
            _write(path, change)
        except _DamagedFileError as damage:
            why = str(damage)
        else:
            return ""
        aside = _rename_damaged(path)
        try:
            _write(path, change)
        except _DamagedFileError as damage:
            raise HistoryError(f"{path}: {damage}") from None
    return f"{path} was damaged ({why}); it is kept as {aside.name}, and a new history begun"


def _write(path: Path, change: Callable[[Database], object]) -> None:
    with _history_errors(path), closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)) as db:
        _distrust(db)
        db.execute("PRAGMA foreign_keys = ON")
        db.row_factory = sqlite3.Row
        with db:
            db.execute("BEGIN IMMEDIATE")
            _migrate(db, path)
            change(_SqliteDatabase(db))


@contextmanager
def _connect_file(path: Path) -> Iterator[Database]:
    _check_files(path)
    try:
        # Not read-only: the next process to open the file rolls back the transaction of a killed writer.
        with (
            _history_errors(path),
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=BUSY_TIMEOUT, uri=True)) as db,
        ):
            _distrust(db)
            _limit_time(db)
            db.row_factory = sqlite3.Row
            db.text_factory = lambda data: data.decode("utf-8", "replace")
            with db:
                if _version(db, path) < len(history_schema.MIGRATIONS):
                    db.execute("BEGIN IMMEDIATE")
                    _migrate(db, path)
            db.execute("PRAGMA query_only = ON")
            yield _SqliteDatabase(db)
    except _DamagedFileError as damage:
        raise HistoryError(f"{path} is damaged ({damage})") from None


def _check_files(path: Path) -> None:
    """Raise NoHistory if there is no file, and HistoryError if it, or one that SQLite keeps beside it, is no file."""
    for one in (path, *(path.with_name(path.name + suffix) for suffix in _BESIDE)):
        if one.exists() and not one.is_file():
            raise HistoryError(f"{one} is not a file")
    if not path.is_file():
        raise NoHistory(f"there is no history {path}")


def snapshot(path: Path, copy: Path) -> None:
    """Copy the file, which is never changed, in a state between transactions. Raises HistoryError."""
    _check_files(path)
    if path.stat().st_size > LARGEST_FILE:
        raise HistoryError(f"{path} has more than {LARGEST_FILE >> 30} GiB; it is not copied")
    try:
        with (
            _history_errors(path),
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=BUSY_TIMEOUT, uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except _DamagedFileError as damage:
        raise HistoryError(f"{path} is damaged ({damage})") from None


def _version(db: sqlite3.Connection, path: Path) -> int:
    """Return how many migrations the file has seen. Raises HistoryError for a foreign or newer file."""
    version, owner = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("user_version", "application_id"))
    empty = not version and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not empty and owner != history_schema.APPLICATION_ID:
        raise HistoryError(f"{path} is an SQLite file of something else; it is left alone")
    known = len(history_schema.MIGRATIONS)
    if version > known:
        raise HistoryError(
            f"{path} was written by a newer version (schema {version}, known: {known}); it is left alone"
        )
    history_schema.check(db, path, version)
    return version


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the tables up to date, inside the open transaction."""
    version = _version(db, path)
    db.create_function("digest", -1, history_schema.digest, deterministic=True)
    for statement in ";".join(history_schema.MIGRATIONS[version:]).split(";"):
        db.execute(statement)
    if version < len(history_schema.MIGRATIONS):
        db.execute(f"PRAGMA application_id = {history_schema.APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(history_schema.MIGRATIONS)}")


@contextmanager
def _history_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the operating system into HistoryError with a plain message."""
    try:
        yield
    except sqlite3.Error as error:
        # A damaged file raises the class itself; a temporary error raises a subclass.
        if type(error) is sqlite3.DatabaseError:
            raise _DamagedFileError(str(error)) from None
        message = str(error)
        ours = next((text for sqlite_text, text in _MESSAGES if sqlite_text in message), message)
        raise HistoryError(f"{path}: {ours}") from None
    except (ValueError, TypeError) as error:
        raise HistoryError(f"{path}: what it holds cannot be read ({error})") from None
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from None


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Admit one process at a time, as far as the file system supports locks.

    The folder itself is locked, so that no file remains.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _rename_damaged(path: Path) -> Path:
    """Rename a damaged file to a free name, together with the files that SQLite keeps beside it."""
    stem = f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (path.with_name(f"{stem}{f'-{place}' if place else ''}") for place in range(1000))
    aside = next(name for name in names if not name.exists())
    with _history_errors(path):
        path.rename(aside)
        for suffix in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside
