"""A real PostgreSQL server in a temporary folder: TCP on this machine, passwords by SCRAM, and a Unix socket."""

from __future__ import annotations

import importlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from pytest_hetgpu.store.history_place import DatabaseUrl

ADMIN = "keeper"
PASSWORD = "k33per/of@the+server"
SETTINGS = """\
fsync = off
autovacuum = off
shared_buffers = 16MB
password_encryption = scram-sha-256
log_statement = none
"""
RULES = "local all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n"


def programs() -> Path | None:
    """The folder of the newest server that is installed."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if beside := shutil.which("initdb"):
        found.append(Path(beside).resolve().parent)
    return max(found, key=lambda path: [int(part) for part in path.parts if part.isdecimal()], default=None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class PostgresqlServer:
    """A server; `url()` are databases on it."""

    def __init__(self, home: Path, bin_folder: Path) -> None:
        self.home, self.bin, self.port = home, bin_folder, free_port()

    def _run(self, program: str, *arguments: str) -> None:
        """Run a program of the server as a user who is not root."""
        other: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if not os.getuid() else {}
        environ = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ} | {"LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            (str(self.bin / program), *arguments),
            cwd=self.home,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
            **other,
        )
        assert done.returncode == 0, done.stdout

    def create(self) -> None:
        """Make the files of the server."""
        secret = self.home / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            "initdb",
            *("--pgdata", str(self.home / "data"), "--username", ADMIN, "--pwfile", str(secret)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync", "--no-instructions"),
        )
        (self.home / "data" / "pg_hba.conf").write_text(RULES)
        with (self.home / "data" / "postgresql.conf").open("a") as file:
            file.write(f"{SETTINGS}listen_addresses = '127.0.0.1'\nport = {self.port}\n")
            file.write(f"unix_socket_directories = '{self.home}'\n")

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = str(self.home / "log")
        self._run("pg_ctl", "--pgdata", str(self.home / "data"), "--log", log, "--wait", "--timeout", "100", "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server; `immediate` is like a loss of power."""
        self._run("pg_ctl", "--pgdata", str(self.home / "data"), "--mode", mode, "--wait", "stop")

    def kill_backends(self) -> None:
        """End every session with this server, as an administrator may."""
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all processes of the server inside the context."""
        main = psutil.Process(int((self.home / "data" / "postmaster.pid").read_text().split()[0]))
        every = [main, *main.children()]
        for one in every:
            one.suspend()
        try:
            yield
        finally:
            for one in every:
                one.resume()

    def url(self, database: str = "postgres", user: str = ADMIN, password: str = PASSWORD) -> DatabaseUrl:
        """A database as the place of a history."""
        return DatabaseUrl(f"postgresql://{user}@127.0.0.1:{self.port}/{database}", password)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as the administrator."""
        import psycopg

        where: Mapping[str, Any] = {"host": "127.0.0.1", "port": self.port, "dbname": "postgres"}
        path = "-c search_path=hetgpu,public"
        with psycopg.connect(**where, user=ADMIN, password=PASSWORD, options=path, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type, unused-ignore]
            return cursor.fetchall() if cursor.description else []

    def fresh(self) -> DatabaseUrl:
        """A database without a history."""
        self.sql("DROP SCHEMA IF EXISTS hetgpu CASCADE")
        return self.url()


@contextmanager
def server(bin_folder: Path) -> Iterator[PostgresqlServer]:
    """Run a server until the end of the context."""
    # Before any test with a pytester, which forgets what is first imported in it.
    for name in ("psycopg", "sqlalchemy.dialects.postgresql.psycopg"):
        importlib.import_module(name)
    home = Path(tempfile.mkdtemp(prefix="pg-hetgpu-"))
    try:
        if not os.getuid():
            owner = pwd.getpwnam("postgres")
            os.chown(home, owner.pw_uid, owner.pw_gid)
        one = PostgresqlServer(home, bin_folder)
        one.create()
        one.start()
        try:
            yield one
        finally:
            if (home / "data" / "postmaster.pid").exists():
                one.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def variable(database: DatabaseUrl) -> Mapping[str, str]:
    """The variable that names a database with its password."""
    user, _, place = database.address.removeprefix("postgresql://").partition("@")
    return {"HETGPU_HISTORY": f"postgresql://{user}:{quote(database.password, safe='')}@{place}"}
