"""The PostgreSQL database of a history, which several machines share. It is read and written through SQLAlchemy.

The tables are in a schema of their own, `hetgpu`, so that the database may hold other tables. The first writer creates
them. The table `schema_version` holds the number of `MIGRATIONS` applied.

A writer holds an advisory lock until the end of its transaction, so numbers of rows are assigned by one writer at a
time. A reader has one snapshot of the database, and waits for no writer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from pytest_hetgpu.errors import HistoryError, NoHistory
from pytest_hetgpu.store import history_schema
from pytest_hetgpu.store.history_place import DatabaseUrl
from pytest_hetgpu.store.redaction.rules import REDACTED

SCHEMA = "hetgpu"
VERSION_TABLE = "schema_version"
LOCK_TIMEOUT = 30.0
"""Seconds that a session waits for other writers. A statement may take twice as long, a silent server three times."""
CONNECT_TIMEOUT = 10
# Text is sorted as in SQLite, byte by byte, whatever the language of the database is.
MIGRATIONS = (history_schema.SCHEMA.replace(" TEXT ", ' TEXT COLLATE "C" '),)
"""Statements that turn the tables of one version into those of the next; `;` only ever ends a statement."""

# A lost machine is noticed within half a minute.
_OPTIONS: Mapping[str, object] = {
    "application_name": "pytest-hetgpu",
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_MESSAGES = {
    "25P03": "this process was stopped for too long",
    "25006": "it may not be written to",
    "53100": "the disk is full",
    "55P03": "another process has been writing for too long",
    "57014": "the server takes too long",
}
"""Our messages by the SQLSTATE of the server."""
_QUESTION = re.compile(r" Is the server running [^?]*\?")
_DENIED = "42501"
_LOST = ("57P", "08")


@dataclass(frozen=True, slots=True)
class _PostgresqlDatabase:
    connection: Connection

    def rows(self, query: str, **values: object) -> Iterable[Mapping[str, Any]]:
        return self._run(query, values).mappings()  # type: ignore[no-any-return]

    def tuples(self, query: str, **values: object) -> Iterable[tuple[Any, ...]]:
        return self._run(query, values)  # type: ignore[no-any-return]

    def change(self, statement: str, *rows: Mapping[str, object]) -> None:
        self._run(statement, [*rows] or {})

    def _run(self, statement: str, values: Any) -> Any:
        return self.connection.execute(text(statement), values)


_Result = TypeVar("_Result")


class _ImpatientConnection(psycopg.Connection[Any]):
    """A connection that closes itself if the server is silent for too long, as a stopped process is."""

    def wait(self, gen: PQGen[_Result], *args: Any, **options: Any) -> _Result:
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, gen: PQGen[_Result]) -> PQGen[_Result]:
        """Pass on what `gen` waits for, as long as something becomes ready."""
        last = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    last = time.monotonic()
                elif time.monotonic() - last > 3 * LOCK_TIMEOUT:
                    self.close()
                    raise psycopg.OperationalError("the server does not answer")
                wanted = gen.send(ready)
        except StopIteration as stop:
            result: _Result = stop.value
            return result


def write(place: DatabaseUrl, change: Callable[[_PostgresqlDatabase], object]) -> None:
    """Apply a change in one transaction. Raises HistoryError."""
    with _transaction(place, "READ COMMITTED") as connection:
        database = _PostgresqlDatabase(connection)
        list(database.rows("SELECT pg_advisory_xact_lock(:key)", key=history_schema.APPLICATION_ID))
        _migrate(database, place)
        change(database)


@contextmanager
def connect(place: DatabaseUrl) -> Iterator[_PostgresqlDatabase]:
    """Open the database for reading. Raises NoHistory if it has no tables of a history, HistoryError if it fails."""
    with _transaction(place, "REPEATABLE READ", read_only=True) as connection:
        database = _PostgresqlDatabase(connection)
        version = _version(database, place)
        if not version:
            raise NoHistory(f"there is no history in {place}")
        if version == len(MIGRATIONS):
            yield database
            return
    write(place, lambda _: None)
    with _transaction(place, "REPEATABLE READ", read_only=True) as connection:
        yield _PostgresqlDatabase(connection)


@contextmanager
def _transaction(place: DatabaseUrl, isolation: str, *, read_only: bool = False) -> Iterator[Connection]:
    """Yield a connection in a transaction, which an error rolls back. Raises HistoryError."""
    opened = False
    try:
        with _engine(place).connect() as connection:
            opened = True
            connection.execution_options(isolation_level=isolation, postgresql_readonly=read_only)
            with connection.begin():
                _set_limits(connection)
                yield connection
    except (SQLAlchemyError, psycopg.Error, OSError) as error:
        raise HistoryError(f"{place}: {_describe(error, place, opened=opened)}") from None
    except (ValueError, TypeError) as error:
        message = _without_password(error, place)
        why = f"what it holds cannot be read ({message})" if opened else f"it cannot be opened: {message}"
        raise HistoryError(f"{place}: {why}") from None


def _engine(place: DatabaseUrl) -> Engine:
    parts = urlsplit(place.address)
    server = parts.netloc.rpartition("@")[2]
    host = server if parts.port is None else server.rpartition(":")[0]
    given = {
        "user": unquote(parts.username or ""),
        "password": place.password,
        "host": unquote(host.strip("[]")),
        "port": str(parts.port or ""),
        "dbname": unquote(parts.path[1:]),
    }
    options: dict[str, Any] = {
        **_OPTIONS,
        **{name: value for name, value in given.items() if value},
        **dict(parse_qsl(parts.query)),
    }

    def connection() -> _ImpatientConnection:
        # A connection pooler may refuse prepared statements.
        return _ImpatientConnection.connect(make_conninfo(**options), prepare_threshold=None)

    return create_engine(
        "postgresql+psycopg://",
        creator=connection,
        poolclass=NullPool,
        use_native_hstore=False,
        hide_parameters=True,
    )


def _set_limits(connection: Connection) -> None:
    """Limit the waits of this transaction. The server ends it if this process or its machine stops."""
    milliseconds = int(LOCK_TIMEOUT * 1000)
    limits = {
        "search_path": SCHEMA,
        "lock_timeout": str(milliseconds),
        "statement_timeout": str(2 * milliseconds),
        "idle_in_transaction_session_timeout": str(2 * milliseconds),
    }
    calls = ", ".join(f"set_config('{name}', :{name}, true)" for name in limits)
    connection.execute(text(f"SELECT {calls}"), limits)


def _version(database: _PostgresqlDatabase, place: DatabaseUrl) -> int:
    """Return how many migrations the database has seen. Raises HistoryError for foreign or newer tables."""
    query = (
        "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = :schema AND relkind IN ('r', 'p', 'v', 'm', 'f')"
    )
    tables = {row["relname"] for row in database.rows(query, schema=SCHEMA)}
    if not tables:
        return 0
    rows: list[Any] = []
    if VERSION_TABLE in tables:
        found = database.rows(f"SELECT to_jsonb(one) AS found FROM {SCHEMA}.{VERSION_TABLE} AS one")  # noqa: S608 - names of ours
        rows = [row["found"] for row in found]
    if [row.get("application") for row in rows] != [history_schema.APPLICATION_ID]:
        raise HistoryError(f"the schema {SCHEMA} in {place} is of something else; it is left alone")
    version = int(rows[0]["version"])
    if version > len(MIGRATIONS):
        raise HistoryError(
            f"{place} was written by a newer version (schema {version}, known: {len(MIGRATIONS)}); it is left alone"
        )
    return version


def _migrate(database: _PostgresqlDatabase, place: DatabaseUrl) -> None:
    """Bring the tables up to date, inside the open transaction of the only writer."""
    version = _version(database, place)
    if not version:
        # An administrator may have created the schema for a role that may not.
        if not list(database.rows("SELECT 1 FROM pg_namespace WHERE nspname = :schema", schema=SCHEMA)):
            database.change(f"CREATE SCHEMA {SCHEMA}")
        database.change(f"CREATE TABLE {VERSION_TABLE} (application BIGINT NOT NULL, version INTEGER NOT NULL)")
        first = {"application": history_schema.APPLICATION_ID}
        database.change(f"INSERT INTO {VERSION_TABLE} (application, version) VALUES (:application, 0)", first)  # noqa: S608
    if version < len(MIGRATIONS):
        for statement in ";".join(MIGRATIONS[version:]).split(";"):
            database.change(statement)
        database.change(f"UPDATE {VERSION_TABLE} SET version = :version", {"version": len(MIGRATIONS)})  # noqa: S608


def _describe(error: Exception, place: DatabaseUrl, *, opened: bool) -> str:
    """Return a plain message on an error of the driver or the server, in one line and without the password."""
    cause = getattr(error, "orig", None) or error
    state = str(getattr(cause, "sqlstate", None) or "")
    message = _without_password(cause, place)
    if not opened:
        return f"it cannot be opened: {message}"
    if state in _MESSAGES:
        return _MESSAGES[state]
    if state == _DENIED:
        return f"its user may not do this: {message}"
    if state.startswith(_LOST) or (not state and isinstance(cause, psycopg.OperationalError)):
        return f"the connection to the server was lost: {message}"
    return message


def _without_password(error: BaseException, place: DatabaseUrl) -> str:
    message = _QUESTION.sub("", " ".join(str(error).split()))
    for secret in {place.password, quote(place.password), quote(place.password, safe="")} - {""}:
        message = message.replace(secret, REDACTED)
    return message
