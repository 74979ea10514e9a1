"""The tables of the history, the same for SQLite and PostgreSQL, and the steps from each earlier version.

A run repeats nearly all texts of the run before it, so each text is stored once. `identity` holds the names of cells,
`setting` versions and settings, and `point` metrics with message sizes. The views `cell` and `measurement` join them
again. `number` holds a value, and its samples as a JSON list.
"""

from __future__ import annotations

import hashlib

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
