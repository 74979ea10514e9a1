"""A history on a real PostgreSQL server: writers at once, killed writers, restarts, roles, other tables."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from pytest_hetgpu.errors import HistoryError, NoHistory
from pytest_hetgpu.store import database, history, postgresql
from pytest_hetgpu.store.history_place import DatabaseUrl
from tests.postgresql_server import PASSWORD, PostgresqlServer, variable
from tests.store.history_samples import RUN, go, ids, start

READER, WRITER = "reader", "writer"


@pytest.fixture
def server(postgresql: PostgresqlServer) -> PostgresqlServer:
    postgresql.fresh()
    return postgresql


@contextmanager
def role(server: PostgresqlServer, name: str, *grants: str) -> Iterator[DatabaseUrl]:
    """A login with a password and these rights alone."""
    server.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'pw-of-{name}'")
    try:
        for grant in grants:
            server.sql(f"GRANT {grant} TO {name}")
        yield server.url(user=name, password=f"pw-of-{name}")
    finally:
        server.sql(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


@pytest.mark.slow
def test_eight_writers_at_once_one_of_them_killed(server: PostgresqlServer) -> None:
    victim_place = DatabaseUrl(f"{server.url().address}?application_name=victim", PASSWORD)
    names = [f"w{number}" for number in range(7)]
    writers = [start(server.url(), name, 5) for name in names]
    victim = start(victim_place, "victim", 1000)
    for writer in (*writers, victim):
        go(writer)
    writing = (
        "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE locktype = 'advisory' AND granted AND application_name = 'victim'"
    )
    while not server.sql(writing):
        assert victim.poll() is None
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert [writer.communicate(timeout=100)[0] for writer in writers] == [""] * 7
    assert [writer.returncode for writer in writers] == [0] * 7
    found = ids(server.url())
    assert {f"{name}-{place}" for name in names for place in range(5)} <= set(found)
    assert len(found) == len(set(found))
    runs = [history.load_run(server.url(), run) for run in found]
    assert {(len(run.cells), sum(len(cell.measurements) for cell in run.cells)) for run in runs} == {(20, 400)}


HALF = """
import os, signal, sys
from pytest_hetgpu.store import database
from pytest_hetgpu.store.history_place import parse_place

def half(db):
    db.change("INSERT INTO run VALUES (77, 'half', '/r', 1.0, 'h', '0', '', '{}')")
    os.kill(os.getpid(), signal.SIGKILL)

database.write(parse_place(os.environ["HETGPU_HISTORY"], "HETGPU_HISTORY"), half)
"""


def test_a_writer_that_is_killed_in_the_middle_leaves_nothing(server: PostgresqlServer) -> None:
    history.put(server.url(), RUN)
    done = subprocess.run([sys.executable, "-c", HALF], env={**os.environ, **variable(server.url())}, check=False)
    assert done.returncode == -signal.SIGKILL
    history.put(server.url(), replace(RUN, id="next"))
    assert ids(server.url()) == ["next", RUN.id]


def test_a_restart_of_the_server_loses_no_run(server: PostgresqlServer) -> None:
    history.put(server.url(), RUN)
    server.stop()
    explained = history.put_or_explain(server.url(), replace(RUN, id="next"))
    assert len(explained) == 1
    assert explained[0].startswith(f"history: this run is not in it ({server.url()}: it cannot be opened: ")
    assert "Connection refused" in explained[0]
    assert explained[0].endswith(f"hetgpu report {RUN.folder} --history {server.url()} puts it in later")
    assert history.previous_run(server.url(), "x", ["aws"]) is None
    server.start()
    assert ids(server.url()) == [RUN.id]
    assert history.put_or_explain(server.url(), replace(RUN, id="next")) == []
    assert ids(server.url()) == ["next", RUN.id]


def test_a_server_that_stops_in_the_middle_of_a_write(server: PostgresqlServer) -> None:
    history.put(server.url(), RUN)

    def half(db: database.Database) -> None:
        db.change("INSERT INTO run VALUES (77, 'half', '/r', 1.0, 'h', '0', '', '{}')")
        server.stop()
        server.start()
        db.change("DELETE FROM run")

    with pytest.raises(HistoryError, match="the connection to the server was lost: ") as caught:
        database.write(server.url(), half)
    assert PASSWORD not in str(caught.value)
    assert ids(server.url()) == [RUN.id]


def test_an_administrator_who_ends_all_sessions(server: PostgresqlServer) -> None:
    history.put(server.url(), RUN)

    def half(db: database.Database) -> None:
        server.kill_backends()
        db.change("DELETE FROM run")

    with pytest.raises(HistoryError, match="the connection to the server was lost: terminating connection"):
        database.write(server.url(), half)
    assert ids(server.url()) == [RUN.id]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("postgresql://keeper@127.0.0.1:PORT/none", 'database "none" does not exist'),
        ("postgresql://nobody@127.0.0.1:PORT/postgres", 'password authentication failed for user "nobody"'),
        ("postgresql://keeper@127.0.0.1:1/postgres", "Connection refused"),
        ("postgresql://keeper@no-such-host.invalid/postgres", "resolve host 'no-such-host.invalid'"),
        ("postgresql://keeper@127.0.0.1:PORT/postgres?sslmode=require", "server does not support SSL"),
        ("postgresql://keeper@127.0.0.1:PORT/postgres?no_such=1", 'invalid connection option "no_such"'),
        ("postgresql://keeper@127.0.0.1:PORT/postgres?autocommit=1", 'invalid connection option "autocommit"'),
    ],
)
def test_a_place_that_cannot_be_opened_is_named_without_its_password(
    server: PostgresqlServer, place: str, why: str
) -> None:
    url = DatabaseUrl(place.replace("PORT", str(server.port)), PASSWORD)
    with pytest.raises(HistoryError) as caught:
        history.list_runs(url)
    assert str(caught.value).startswith(f"{url}: it cannot be opened: ")
    assert why in str(caught.value)
    (line,) = history.put_or_explain(url, RUN)
    for text in (line, str(caught.value), repr(url), repr(caught.value)):
        assert PASSWORD not in text
        assert "\n" not in text


def test_the_unix_socket_too(server: PostgresqlServer) -> None:
    folder = str(server.home).replace("/", "%2F")
    for address in (
        f"postgresql://keeper@{folder}:{server.port}/postgres",
        f"postgresql://keeper@/postgres?host={folder}&port={server.port}",
    ):
        history.put(DatabaseUrl(address, PASSWORD), RUN)
    assert ids(server.url()) == [RUN.id]


def test_a_role_that_may_only_read(server: PostgresqlServer) -> None:
    with role(server, READER) as place:
        with pytest.raises(NoHistory):
            history.list_runs(place)
        history.put(server.url(), RUN)
        with pytest.raises(HistoryError, match="its user may not do this: permission denied for schema hetgpu"):
            history.list_runs(place)
        server.sql(f"GRANT USAGE ON SCHEMA hetgpu TO {READER}; GRANT SELECT ON ALL TABLES IN SCHEMA hetgpu TO {READER}")
        assert history.load_run(place, RUN.id) == RUN
        (line,) = history.put_or_explain(place, replace(RUN, id="next"))
        assert f"({place}: its user may not do this: permission denied for table run)" in line
    assert ids(server.url()) == [RUN.id]


def test_a_role_for_which_the_schema_was_created(server: PostgresqlServer) -> None:
    with role(server, WRITER) as place:
        (line,) = history.put_or_explain(place, RUN)
        assert "its user may not do this: permission denied for database postgres" in line
        server.sql(f"CREATE SCHEMA hetgpu AUTHORIZATION {WRITER}")
        history.put(place, RUN)
        assert ids(place) == [RUN.id]


def test_other_tables_are_left_alone(server: PostgresqlServer) -> None:
    server.sql("CREATE TABLE public.run (text TEXT); INSERT INTO public.run VALUES ('mine')")
    try:
        history.put(server.url(), RUN)
        assert server.sql("SELECT * FROM public.run") == [("mine",)]
    finally:
        server.sql("DROP TABLE public.run")


@pytest.mark.parametrize(
    "table", ["run (id TEXT)", "schema_version (version INTEGER)", "schema_version (application BIGINT)"]
)
def test_a_schema_of_something_else_is_left_alone(server: PostgresqlServer, table: str) -> None:
    server.sql(f"CREATE SCHEMA hetgpu; CREATE TABLE hetgpu.{table}")
    for use in (lambda: history.put(server.url(), RUN), lambda: history.list_runs(server.url())):
        with pytest.raises(HistoryError, match=r"the schema hetgpu in \S+ is of something else; it is left alone"):
            use()
    assert server.sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'hetgpu'::regnamespace") == [(1,)]


def test_a_newer_version_is_refused_and_left_alone(server: PostgresqlServer) -> None:
    history.put(server.url(), RUN)
    server.sql("UPDATE hetgpu.schema_version SET version = 99")
    for use in (lambda: history.put(server.url(), replace(RUN, id="b")), lambda: history.list_runs(server.url())):
        with pytest.raises(
            HistoryError, match=r"was written by a newer version \(schema 99, known: 1\); it is left alon"
        ):
            use()
    assert server.sql("SELECT id FROM hetgpu.run") == [(RUN.id,)]


def test_an_older_version_is_brought_up_to_date(server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    history.put(server.url(), RUN)
    more = "CREATE TABLE note (text TEXT); INSERT INTO note SELECT id FROM run"
    with monkeypatch.context() as patch:
        patch.setattr(postgresql, "MIGRATIONS", (*postgresql.MIGRATIONS, "CREATE TABLE note (text TEXT); NONSENSE"))
        with pytest.raises(HistoryError, match='syntax error at or near "NONSENSE"'):
            history.list_runs(server.url())
    monkeypatch.setattr(postgresql, "MIGRATIONS", (*postgresql.MIGRATIONS, more))
    assert ids(server.url()) == [RUN.id], "reading does it, too"
    history.put(server.url(), replace(RUN, id="next"))
    assert server.sql("SELECT * FROM hetgpu.note") == [(RUN.id,)]
    assert server.sql("SELECT version FROM hetgpu.schema_version") == [(2,)]


def test_a_writer_that_never_ends_is_not_waited_for_for_ever(
    server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.put(server.url(), RUN)
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT", 0.3)

    def slow(_: database.Database) -> None:
        with pytest.raises(HistoryError, match="another process has been writing for too long$"):
            history.put(server.url(), replace(RUN, id="next"))
        assert ids(server.url()) == [RUN.id], "readers do not wait"

    database.write(server.url(), slow)


def test_a_writer_that_stops_loses_its_lock(server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(db: database.Database) -> None:
        time.sleep(1.2)
        db.change("DELETE FROM run")

    history.put(server.url(), RUN)
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT", 0.3)
    with pytest.raises(HistoryError, match="this process was stopped for too long$"):
        database.write(server.url(), late)
    history.put(server.url(), replace(RUN, id="next"))


def test_a_server_that_is_stopped_is_not_waited_for_for_ever(
    server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.put(server.url(), RUN)

    def half(db: database.Database) -> None:
        monkeypatch.setattr(postgresql, "LOCK_TIMEOUT", 0.2)
        with server.paused():
            db.change("DELETE FROM run")

    with pytest.raises(HistoryError, match="the connection to the server was lost: the server does not answer$"):
        database.write(server.url(), half)
    assert ids(server.url()) == [RUN.id]


def test_a_server_that_never_begins_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = DatabaseUrl(f"postgresql://keeper@127.0.0.1:{silent.getsockname()[1]}/x?connect_timeout=2", PASSWORD)
        began = time.monotonic()
        (line,) = history.put_or_explain(url, RUN)
    assert "it cannot be opened: connection timeout expired" in line
    assert time.monotonic() - began < 15


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pytest_hetgpu.store.postgresql")
    monkeypatch.delattr("pytest_hetgpu.store.postgresql")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    url = DatabaseUrl("postgresql://ci@db/runs", PASSWORD)
    for use in (lambda: history.list_runs(url), lambda: history.put(url, RUN)):
        with pytest.raises(HistoryError) as caught:
            use()
        assert str(caught.value) == ("postgresql://ci@db/runs needs psycopg: pip install 'pytest-hetgpu[postgresql]'")


def test_a_reader_sees_one_moment(server: PostgresqlServer) -> None:
    history.put(server.url(), RUN)
    with database.connect(server.url()) as db:
        assert len(list(db.rows("SELECT id FROM run"))) == 1
        writer = threading.Thread(target=history.put, args=(server.url(), replace(RUN, id="next")))
        writer.start()
        writer.join(60)
        assert len(list(db.rows("SELECT id FROM run"))) == 1
        with pytest.raises(HistoryError, match="it may not be written to$"), database.connect(server.url()) as other:
            other.change("DELETE FROM run")
    assert len(ids(server.url())) == 2
