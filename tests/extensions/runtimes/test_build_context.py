from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes.containers.build_context import (
    base_of,
    content_digest,
    context,
    excluded,
    ignore_patterns,
    reference,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cpu-ompi5"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "Dockerfile").write_text("ARG BASE=debian:12\nFROM ${BASE}\nCOPY . /x\n")
    (made / "smoke").write_text("#!/bin/sh\n")
    (made / "deep" / "er" / "data").write_text("1")
    return made


def paths(folder: Path) -> list[str]:
    return [entry.path for entry in context(str(folder))]


def test_a_reference_tells_the_folder_and_what_is_in_it(folder: Path) -> None:
    name, _, digest = reference(str(folder), {}).partition(":")
    assert name == "hetgpu/cpu-ompi5"
    assert len(digest) == 12
    odd = folder.rename(folder.parent / "CPU ompi_5..b")
    assert reference(str(odd), {}) == f"hetgpu/cpu-ompi-5-b:{digest}"


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "smoke").write_text("#!/bin/bash\n"),
        lambda folder: (folder / "smoke").chmod(0o755),
        lambda folder: (folder / "smoke").rename(folder / "smoke2"),
        lambda folder: (folder / "deep" / "more").mkdir(),
        lambda folder: (folder / "deep" / "er" / "data").unlink(),
        lambda folder: (folder / "link").symlink_to("smoke"),
        lambda folder: (folder / ".dockerignore").write_text("deep\n"),
    ],
    ids=["content", "mode", "name", "folder", "gone", "link", "ignored"],
)
def test_what_changes_the_image_changes_the_digest(folder: Path, change: Callable[[Path], object]) -> None:
    (folder / "smoke").chmod(0o644)
    before = content_digest(str(folder), {})
    change(folder)
    assert content_digest(str(folder), {}) != before


def test_build_arguments_count_and_their_order_does_not(folder: Path) -> None:
    one = content_digest(str(folder), {"A": "1", "B": "2"})
    assert one == content_digest(str(folder), {"B": "2", "A": "1"})
    assert len({one, content_digest(str(folder), {}), content_digest(str(folder), {"A": "1B", "": "2"})}) == 3


def test_times_and_what_is_ignored_do_not_count(folder: Path) -> None:
    (folder / ".dockerignore").write_text("*.log\n")
    before = content_digest(str(folder), {})
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    (folder / "x.log").write_text("noise")
    assert content_digest(str(folder), {}) == before


def test_the_context_is_all_of_the_folder_but_what_is_ignored(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert paths(folder) == ["Dockerfile", "deep", "deep/er", "deep/er/data", "smoke"]
    (folder / ".dockerignore").write_text("*\n!deep/er/data\n")
    assert paths(folder) == [".dockerignore", "Dockerfile", "deep/er/data"]


# What each .dockerignore leaves out of these, as Docker's own rules have it.
TREE = ("a.log", "b/a.log", "b/c/a.log", "b/keep", ".git/config", "x1", "x[1", "Dockerfile", "tmp", "tmp/y", "a\\b")


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("*.log", {"a.log"}),
        ("**/*.log", {"a.log", "b/a.log", "b/c/a.log"}),
        ("b", {"b/a.log", "b/c/a.log", "b/keep"}),
        ("/b/", {"b/a.log", "b/c/a.log", "b/keep"}),
        ("./b/../tmp", {"tmp", "tmp/y"}),
        ("b/*\n!b/keep", {"b/a.log", "b/c/a.log"}),
        ("b/**\n!**/keep\nb/keep", {"b/a.log", "b/c/a.log", "b/keep"}),
        ("# b\n\n  tmp  ", {"tmp", "tmp/y"}),
        ("x?", {"x1"}),
        ("x[0-9]", {"x1"}),
        ("x[^0-9]", {"x[1"} - {"x[1"}),
        ("*/*.log", {"b/a.log"}),
        ("**", set(TREE) - {"Dockerfile"}),
        (".", set()),
        ("Dockerfile", set()),
        (".git", {".git/config"}),
    ],
)
def test_dockerignore(text: str, left_out: set[str]) -> None:
    patterns = ignore_patterns(text)
    assert {path for path in TREE if excluded(path, patterns)} == left_out


@pytest.mark.parametrize(
    "text",
    ["*.log", "**/*.log", "b", "/b/", "b/*\n!b/keep", "x?", "x[0-9]", "*/*.log", "**", ".git", "**/c", "b/**/a.log"],
)
def test_dockerignore_is_read_as_the_docker_sdk_reads_it(text: str) -> None:
    build = pytest.importorskip("docker.utils.build", reason="without the Docker SDK: pip install docker")
    theirs = build.PatternMatcher([*text.splitlines(), "!Dockerfile"])
    patterns = ignore_patterns(text)
    assert [path for path in TREE if excluded(path, patterns)] == [path for path in TREE if theirs.matches(path)]


@pytest.mark.parametrize(
    ("dockerfile", "args", "base"),
    [
        ("ARG BASE=debian:12\nFROM ${BASE}\n", {}, "debian:12"),
        ("ARG BASE=debian:12\nFROM ${BASE}\n", {"BASE": "mine:1"}, "mine:1"),
        ('# x\narg BASE="q:1"\nFROM x\n', {}, "q:1"),
        ("ARG BASE\nFROM ${BASE}\n", {}, ""),
        ("FROM debian\nARG BASE=not-this\n", {}, ""),
    ],
)
def test_the_base_is_what_the_build_starts_from(
    tmp_path: Path, dockerfile: str, args: dict[str, str], base: str
) -> None:
    (tmp_path / "Dockerfile").write_text(dockerfile)
    assert base_of(str(tmp_path), args) == base


def test_a_folder_without_a_dockerfile_is_no_image(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{tmp_path}: an image is built from a folder with a Dockerfile"):
        content_digest(str(tmp_path), {})
    with pytest.raises(UsageError, match="nowhere"):
        content_digest(str(tmp_path / "nowhere"), {})


def test_a_dockerignore_that_is_no_text_is_told(folder: Path) -> None:
    (folder / ".dockerignore").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="dockerignore: is not UTF-8"):
        context(str(folder))
