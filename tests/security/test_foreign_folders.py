"""An image's folder, and an engine's host: anybody's. Patterns that take for ever, and archives that never end."""

from __future__ import annotations

import io
import itertools
import tarfile
import time
from pathlib import Path

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes._docker.networks import _first, _only_file, groups_in
from pytest_hetgpu.extensions.runtimes.containers.build_context import context


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    return tmp_path


def test_a_pattern_takes_no_longer_than_others(folder: Path) -> None:
    pytest.importorskip("re2")
    (folder / ("a" * 250)).touch()
    (folder / ".dockerignore").write_text("**a" * 30 + "b\n")
    began = time.monotonic()
    assert len(context(str(folder))) == 3
    assert time.monotonic() - began < 5


def test_what_is_no_pattern_is_said(folder: Path) -> None:
    (folder / ".dockerignore").write_text("x\n[z-a]\n")
    with pytest.raises(UsageError, match=r"^\.dockerignore: '\[z-a\]' is no pattern: "):
        context(str(folder))


def test_names_that_are_no_text_are_of_the_build(folder: Path) -> None:
    (folder / ".dockerignore").write_text("b?\n")
    Path(str(folder) + "/\udcff").touch()
    assert [entry.path for entry in context(str(folder))] == [".dockerignore", "Dockerfile", "\udcff"]


def archive(data: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("../../etc/group")
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def test_what_an_engine_sends_without_end_is_cut() -> None:
    assert len(_first(itertools.repeat(b"x" * 1000), 1500)) == 1500
    assert groups_in(_only_file(archive(b"video:x:44:\nbad\n"))) == {"video": "44"}


@pytest.mark.parametrize("sent", [b"", b"\0" * 20_000, b"x" * 20_000, archive(b"a:x:1:\n" * 9000)[:9000]])
def test_what_is_no_archive_names_no_group(sent: bytes) -> None:
    assert set(groups_in(_only_file(sent)).values()) <= {"1"}
