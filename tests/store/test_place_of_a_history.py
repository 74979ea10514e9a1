"""What names the place of a history: paths, URLs, and where a password may be."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.store.history_place import VARIABLE, DatabaseUrl, parse_place

SECRET = "hunter2/of#the@server"
QUOTED = "hunter2%2Fof%23the%40server"


def parse(text: str, source: str = VARIABLE, **environ: str) -> object:
    return parse_place(text, source, environ)


@pytest.mark.parametrize("text", ["history.sqlite", "/a/b #1.sqlite", "a:b", "./postgresql", "C:\\x", "postgresql"])
def test_a_path_is_a_file(text: str) -> None:
    assert parse(text) == Path(text)


@pytest.mark.parametrize(
    ("text", "address", "password"),
    [
        ("postgresql://db/runs", "postgresql://db/runs", ""),
        ("postgres://ci@db:5433/runs", "postgresql://ci@db:5433/runs", ""),
        (f"postgresql://ci:{QUOTED}@db/runs", "postgresql://ci@db/runs", SECRET),
        ("postgresql://ci:p@ss:w@[::1]:1/runs", "postgresql://ci@[::1]:1/runs", "p@ss:w"),
        ("postgresql://ci:a@db/runs?sslmode=verify-full", "postgresql://ci@db/runs?sslmode=verify-full", "a"),
        ("postgresql:///runs?host=%2Frun%2Fpg", "postgresql:///runs?host=%2Frun%2Fpg", ""),
    ],
)
def test_a_url_is_an_address_and_a_password(text: str, address: str, password: str) -> None:
    assert parse(text) == DatabaseUrl(address, password)
    assert str(parse(text)) == f"{parse(text)}" == address
    assert repr(parse(text)) == f"DatabaseUrl(address={address!r})"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mysql://ci:SECRET@db/runs", "HETGPU_HISTORY: mysql: is not supported: give a file, or postgresql://USER@"),
        ("postgresql+psycopg://ci:SECRET@db/runs", "HETGPU_HISTORY: postgresql+psycopg: is not supported"),
        ("postgresql://ci:SECRET@db", "HETGPU_HISTORY: the URL names no database: postgresql://USER@HOST/DATABASE"),
        ("postgresql://ci:SECRET@db/", "the URL names no database"),
        ("postgresql:/ci:SECRET@db/runs", "the URL names no database"),
        ("postgresql:ci:SECRET@db/runs", "the URL names no database"),
        ("postgresql:runs", "the URL names no database"),
        ("postgresql://ci:SECRET/x@db/runs", "the URL is invalid"),
        ("postgresql://ci:77/SECRET@db/runs", "the URL names no database"),
        ("postgresql://ci:SECRET#x@db/runs", "the URL is invalid"),
        ("postgresql://ci:77/a#SECRET@db/runs", "the URL names no database"),
        ("postgresql://ci:77/a?SECRET@db/runs", "the URL names no database"),
        ("postgresql://ci:SECRET@db:none/runs", "the URL is invalid"),
        ("postgresql://ci:SECRET@[db/runs", "the URL is invalid"),
        ("postgresql://db/runs?password=SECRET", "password is not an option of the URL: set HETGPU_HISTORY to"),
        ("postgresql://db/runs?a=b&sslpassword=SECRET", "sslpassword is not an option of the URL"),
    ],
)
def test_a_url_that_is_none_is_refused_and_not_quoted(text: str, why: str) -> None:
    for source in (VARIABLE, "--history"):
        with pytest.raises(UsageError) as caught:
            parse(text, source)
        assert why.replace(f"{VARIABLE}: ", f"{source}: ") in str(caught.value)
        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("source", ["--hetgpu-history", "--history", "hetgpu_history in /x/pytest.ini"])
def test_a_password_belongs_into_the_variable(source: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"postgresql://ci:{QUOTED}@db/runs", source)
    assert str(caught.value) == (
        f"{source}: a password does not belong here, where others can read it: "
        "set HETGPU_HISTORY to the whole URL, or add the password to ~/.pgpass"
    )


def test_a_url_without_a_password_takes_that_of_the_variable() -> None:
    variable = f"postgres://ci:{QUOTED}@db/runs"
    assert parse("postgresql://ci@db/runs", "--history", HETGPU_HISTORY=variable) == parse(variable)
    for other in ("postgresql://ci@db/other", "postgresql://me@db/runs", "postgresql://ci@db2/runs"):
        assert parse(other, "--history", HETGPU_HISTORY=variable) == DatabaseUrl(other)
    for broken in ("off", "postgresql://", "a.sqlite", "mysql://a:b@c/d"):
        assert parse("postgresql://ci@db/runs", "--history", HETGPU_HISTORY=broken) == parse("postgresql://ci@db/runs")


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    place = DatabaseUrl("postgresql://ci@db/runs", SECRET)
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> Any:
        return None if name in ("sqlalchemy", "psycopg") else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(UsageError) as caught:
        place.require_packages()
    assert str(caught.value) == (
        "the history postgresql://ci@db/runs needs sqlalchemy and psycopg, not installed here: "
        "pip install 'pytest-hetgpu[postgresql]'"
    )
