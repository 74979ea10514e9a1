"""Checks of a history of any origin, and limits on what is read from it.

The file may come from another site. SQLite runs what a file defines: a view in place of a table, a trigger, a column
that is computed. So only our own tables are read, and a read has a limit of time, rows and bytes.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TypeVar

from pytest_hetgpu.errors import HistoryError
from pytest_hetgpu.store import history_schema

T = TypeVar("T")

SECONDS = 60.0
"""The longest time of all queries of one read."""
MOST_ROWS = 5_000_000
"""Rows of one query."""
LARGEST_VALUE = 64 << 20
"""Bytes of one value, or of one row."""
LARGEST_FILE = 4 << 30
"""Bytes of a history that is copied."""
_INSTRUCTIONS = 10_000  # of SQLite's machine between two looks at the clock: a millisecond


def distrust(db: sqlite3.Connection) -> None:
    """Let nothing in the file's schema have an effect outside the file, and bound its values."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    if hasattr(db, "setlimit"):  # from Python 3.11 on
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)


def limit_time(db: sqlite3.Connection) -> None:
    """Interrupt queries that take longer than `SECONDS` together."""
    deadline = time.monotonic() + SECONDS
    db.set_progress_handler(lambda: time.monotonic() > deadline, _INSTRUCTIONS)


def limit_rows(rows: Iterable[T]) -> Iterator[T]:
    """Yield rows. Raises HistoryError for too many."""
    for count, row in enumerate(rows):
        if count >= MOST_ROWS:
            raise HistoryError(f"the history holds more than {MOST_ROWS:,} rows of one kind; it is not read")
        yield row


def check_schema(db: sqlite3.Connection, path: Path, version: int) -> None:
    """Raise HistoryError unless the tables and views of that version are what our statements make, without triggers."""
    found = {str(name): (str(kind), _plain(sql)) for kind, name, sql in _schema(db)}
    for name, (kind, _) in found.items():
        if kind == "trigger":
            raise _refused(path, f"it has a trigger, {name!r}")
    for name, (kind, wanted) in _expected(version).items():
        there, sql = found.get(name, ("", ""))
        if not there:
            raise _refused(path, f"it lacks the {kind} {name!r}")
        if there != kind:
            raise _refused(path, f"its {kind} {name!r} is {'an' if there == 'index' else 'a'} {there}")
        if kind == "view" and sql != wanted:
            raise _refused(path, f"its view {name!r} is another one")
        if kind == "table":
            _check_table(db, path, name, version)


def _check_table(db: sqlite3.Connection, path: Path, name: str, version: int) -> None:
    virtual = db.execute("SELECT sql LIKE 'create virtual%' FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
    if virtual:
        raise _refused(path, f"its table {name!r} is a virtual one")
    hidden = dict(_columns(db, name))
    if computed := [column for column, kind in hidden.items() if kind]:
        raise _refused(path, f"the column {computed[0]!r} of its table {name!r} is computed")
    if missing := [column for column in _expected_columns(version)[name] if column not in hidden]:
        raise _refused(path, f"its table {name!r} lacks the column {missing[0]!r}")


def _refused(path: Path, why: str) -> HistoryError:
    return HistoryError(f"{path} is not a history as pytest-hetgpu writes it: {why}. It is left alone")


def _schema(db: sqlite3.Connection) -> list[tuple[object, object, object]]:
    cursor = db.cursor()
    cursor.row_factory = None
    query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    return cursor.execute(query).fetchall()


def _columns(db: sqlite3.Connection, table: str) -> list[tuple[str, int]]:
    """Return the names of all columns, and what SQLite calls `hidden`: 0 for one that is stored."""
    cursor = db.cursor()
    cursor.row_factory = None
    return cursor.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,)).fetchall()


def _plain(sql: object) -> str:
    return " ".join(str(sql).split())


@cache
def _expected(version: int) -> Mapping[str, tuple[str, str]]:
    """Return the tables and views of a version: kind and statement by name."""
    with closing(_reference(version)) as db:
        return {str(name): (str(kind), _plain(sql)) for kind, name, sql in _schema(db) if kind in ("table", "view")}


@cache
def _expected_columns(version: int) -> Mapping[str, tuple[str, ...]]:
    with closing(_reference(version)) as db:
        tables = (name for name, (kind, _) in _expected(version).items() if kind == "table")
        return {table: tuple(name for name, _ in _columns(db, table)) for table in tables}


def _reference(version: int) -> sqlite3.Connection:
    """Return an empty history of a version, in memory."""
    db = sqlite3.connect(":memory:")
    db.create_function("digest", -1, history_schema.digest, deterministic=True)
    for statement in ";".join(history_schema.MIGRATIONS[:version]).split(";"):
        db.execute(statement)
    return db
