"""The tables of the history, the same for SQLite and PostgreSQL, and the steps from each earlier version.

A run repeats nearly all texts of the run before it, so each text is stored once. `identity` holds the names of cells,
`setting` versions and settings, and `point` metrics with message sizes. The views `cell` and `measurement` join them
again. `number` holds a value, and its samples as a JSON list.

A file may come from another site. SQLite runs what a file defines: a view in place of a table, a trigger, a computed
column. So `check` refuses a file whose tables and views are not ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.errors import HistoryError

if TYPE_CHECKING:
    import sqlite3

APPLICATION_ID = 0x68677075
_TABLES = """
    CREATE TABLE identity (
        id INTEGER PRIMARY KEY, matrix TEXT NOT NULL, scenario TEXT NOT NULL, axes TEXT NOT NULL,
        digest TEXT NOT NULL UNIQUE
    );
    CREATE TABLE setting (
        id INTEGER PRIMARY KEY, stack TEXT NOT NULL, transports TEXT NOT NULL, facts TEXT NOT NULL, tool TEXT NOT NULL,
        nodes TEXT NOT NULL, digest TEXT NOT NULL UNIQUE
    );
    CREATE TABLE point (
        id INTEGER PRIMARY KEY, metric TEXT NOT NULL, size BIGINT NOT NULL, dtype TEXT NOT NULL, place TEXT NOT NULL,
        ranks BIGINT NOT NULL, unit TEXT NOT NULL, digest TEXT NOT NULL UNIQUE
    );
    CREATE TABLE outcome (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
        identity INTEGER NOT NULL REFERENCES identity (id),
        setting INTEGER NOT NULL REFERENCES setting (id),
        kind TEXT NOT NULL, verdict TEXT NOT NULL, signature TEXT NOT NULL, why TEXT NOT NULL, issue TEXT NOT NULL,
        seconds DOUBLE PRECISION
    );
    CREATE INDEX outcome_of_run ON outcome (run);
    CREATE TABLE number (
        outcome INTEGER NOT NULL REFERENCES outcome (id) ON DELETE CASCADE,
        point INTEGER NOT NULL REFERENCES point (id),
        value DOUBLE PRECISION, samples TEXT NOT NULL,
        PRIMARY KEY (outcome, point)
    )"""
_VIEWS = """
    CREATE VIEW cell AS
        SELECT outcome.id AS id, run.id AS run, identity.matrix AS matrix, identity.scenario AS scenario, kind, verdict,
            identity.axes AS axes, signature, why, issue, seconds, setting.stack AS stack,
            setting.transports AS transports, setting.facts AS facts, setting.tool AS tool, setting.nodes AS nodes
        FROM outcome JOIN run ON run.number = outcome.run JOIN identity ON identity.id = outcome.identity
            JOIN setting ON setting.id = outcome.setting;
    CREATE VIEW measurement AS
        SELECT outcome AS cell, metric, size, dtype, place, ranks, value, unit, samples
        FROM number JOIN point ON point.id = number.point"""
_RUN = """
    CREATE TABLE run (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, folder TEXT NOT NULL, started DOUBLE PRECISION NOT NULL,
        machine TEXT NOT NULL, package TEXT NOT NULL, site TEXT NOT NULL, basis TEXT NOT NULL
    );
    CREATE TABLE matrix (
        run INTEGER NOT NULL REFERENCES run (number) ON DELETE CASCADE,
        place INTEGER NOT NULL, name TEXT NOT NULL, file TEXT NOT NULL, sha256 TEXT NOT NULL,
        PRIMARY KEY (run, name)
    )"""
SCHEMA = f"{_RUN};{_TABLES};{_VIEWS}"
"""The present version for a new PostgreSQL database: statements between `;`."""
_TO_THREE = f"""
    ALTER TABLE run RENAME TO run_2;
    ALTER TABLE matrix RENAME TO matrix_2;
    ALTER TABLE cell RENAME TO cell_2;
    ALTER TABLE measurement RENAME TO measurement_2;
    {_RUN};{_TABLES} WITHOUT ROWID;
    INSERT INTO run SELECT rowid, id, folder, started, machine, package, '', '{{}}' FROM run_2;
    INSERT INTO matrix
        SELECT run.number, matrix_2.rowid, name, file, sha256 FROM matrix_2 JOIN run ON run.id = matrix_2.run;
    INSERT OR IGNORE INTO identity SELECT NULL, matrix, scenario, axes, digest(matrix, scenario, axes) FROM cell_2;
    INSERT OR IGNORE INTO setting
        SELECT NULL, stack, transports, facts, tool, '{{}}', digest(stack, transports, facts, tool, '{{}}') FROM cell_2;
    INSERT OR IGNORE INTO point
        SELECT NULL, metric, size, dtype, place, ranks, unit, digest(metric, size, dtype, place, ranks, unit)
        FROM measurement_2;
    INSERT INTO outcome
        SELECT cell_2.id, run.number, identity.id, setting.id, kind, verdict, signature, why, '', seconds
        FROM cell_2 JOIN run ON run.id = cell_2.run
            JOIN identity ON identity.digest = digest(cell_2.matrix, cell_2.scenario, cell_2.axes)
            JOIN setting ON setting.digest =
                digest(cell_2.stack, cell_2.transports, cell_2.facts, cell_2.tool, '{{}}');
    INSERT OR REPLACE INTO number
        SELECT cell, point.id, value, samples FROM measurement_2 JOIN point ON point.digest =
            digest(measurement_2.metric, measurement_2.size, measurement_2.dtype, measurement_2.place,
                measurement_2.ranks, measurement_2.unit);
    DROP TABLE measurement_2;
    DROP TABLE cell_2;
    DROP TABLE matrix_2;
    DROP TABLE run_2;
    {_VIEWS}"""  # noqa: S608 - text of ours
MIGRATIONS = (
    """
    CREATE TABLE run (
        id TEXT PRIMARY KEY, folder TEXT NOT NULL, started REAL NOT NULL, machine TEXT NOT NULL, package TEXT NOT NULL
    );
    CREATE TABLE matrix (
        run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        name TEXT NOT NULL, file TEXT NOT NULL, sha256 TEXT NOT NULL,
        PRIMARY KEY (run, name)
    );
    CREATE TABLE cell (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        matrix TEXT NOT NULL, scenario TEXT NOT NULL, kind TEXT NOT NULL, verdict TEXT NOT NULL, axes TEXT NOT NULL,
        signature TEXT NOT NULL, why TEXT NOT NULL, seconds REAL, stack TEXT NOT NULL, transports TEXT NOT NULL,
        facts TEXT NOT NULL, tool TEXT NOT NULL,
        UNIQUE (run, matrix, scenario)
    );
    CREATE TABLE measurement (
        cell INTEGER NOT NULL REFERENCES cell (id) ON DELETE CASCADE,
        metric TEXT NOT NULL, size INTEGER NOT NULL, dtype TEXT NOT NULL, place TEXT NOT NULL,
        ranks INTEGER NOT NULL, value REAL, unit TEXT NOT NULL,
        PRIMARY KEY (cell, metric, size, dtype, place)
    ) WITHOUT ROWID
    """,
    "ALTER TABLE measurement ADD COLUMN samples TEXT NOT NULL DEFAULT ''",
    _TO_THREE,
)
"""Statements that turn the SQLite tables of one version into those of the next; `;` only ever ends a statement."""


def digest(*values: object) -> str:
    """Return a short name of texts and numbers, by which equal ones are stored once."""
    return hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def check(db: sqlite3.Connection, path: Path, version: int) -> None:
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
    import sqlite3  # PostgreSQL needs none of it

    db = sqlite3.connect(":memory:")
    db.create_function("digest", -1, digest, deterministic=True)
    for statement in ";".join(MIGRATIONS[:version]).split(";"):
        db.execute(statement)
    return db
