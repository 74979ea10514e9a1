"""Packed files, archives and folders of logs, those made to harm included."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cli.explain import packed
from pytest_hetgpu.cli.main import main

LOG = (Path(__file__).parents[2] / "data" / "logs" / "openmpi5-ucx-guarded.log").read_bytes()
GOOD = b"$ mpirun -np 2 ./a.out\nstep 1 residual 2.0\ndone\n"
Answers = dict[str, dict[str, Any]]


def answers(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Answers:
    assert main(["explain", "--json", *arguments]) == code
    return {found["file"]: found for found in map(json.loads, capsys.readouterr().out.splitlines())}


def outcomes(found: Answers) -> dict[str, str]:
    return {name: answer["outcome"] for name, answer in found.items()}


def zipped(members: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def tarred(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return target.getvalue()


def zstd(data: bytes) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("no program zstd")
    return subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, partial(lzma.compress, preset=0), zstd], ids=["gz", "bz2", "xz", "zst"]
)
def test_a_packed_log_is_read_like_others(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    pack: Callable[[bytes], bytes],
) -> None:
    plain, log = tmp_path / "a.log", tmp_path / "my log"
    plain.write_bytes(LOG)
    log.write_bytes(pack(LOG))
    (expected,) = answers(capsys, str(plain)).values()
    assert expected["outcome"] == "crash"
    assert answers(capsys, str(log)) == {str(log): expected | {"file": str(log)}}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(LOG))))
    assert answers(capsys) == {"-": expected | {"file": "-"}}


def test_wide_characters_in_a_packed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.gz"
    log.write_bytes(gzip.compress(LOG.decode().encode("utf-16")))
    assert outcomes(answers(capsys, str(log))) == {str(log): "crash"}


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, partial(lzma.compress, preset=0), zstd], ids=["gz", "bz2", "xz", "zst"]
)
def test_of_a_file_that_is_cut_off_the_part_before_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: Callable[[bytes], bytes]
) -> None:
    log = tmp_path / "a.packed"
    whole = b"".join(b"step %d residual %d\n" % (number, number**7) for number in range(45_000))
    log.write_bytes(pack(whole)[:-100])
    assert main(["explain", str(log)]) == 0
    shown = capsys.readouterr()
    assert "unknown: of its " in shown.out
    assert "cut off or damaged" in shown.err


def test_a_damaged_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.gz"
    log.write_bytes(b"\x1f\x8b\x08\x00 and no more")
    assert main(["explain", str(log)]) == 4
    assert capsys.readouterr().err.startswith(f"ERROR: {log}: is packed (gzip), but damaged: ")


def test_without_zstd_the_message_names_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    log = tmp_path / "a.zst"
    log.write_bytes(b"\x28\xb5\x2f\xfd\x24\x00")
    assert main(["explain", str(log)]) == 4
    assert "install the program zstd, or use Python 3.14" in capsys.readouterr().err


MEMBERS = {
    "logs/slurm-7.out": LOG,
    "logs/a.log": GOOD,
    "logs/b.log.gz": gzip.compress(LOG),
    "logs/core": b"\x7fELF" + bytes(4000),
    "logs/job.sh": b"#!/bin/sh\nmpirun ./a.out\n",
    "logs/empty.err": b"",
    "logs/.hidden": GOOD,
}
FOUND = {"logs/a.log": "passed", "logs/b.log.gz": "crash", "logs/slurm-7.out": "crash"}


@pytest.mark.parametrize(
    "archive",
    [zipped(MEMBERS), tarred(MEMBERS), tarred(MEMBERS, "w:gz"), tarred(MEMBERS, "w:xz")],
    ids=["zip", "tar", "tar.gz", "tar.xz"],
)
def test_each_log_of_an_archive_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], archive: bytes
) -> None:
    path = tmp_path / "archive"
    path.write_bytes(archive)
    found = outcomes(answers(capsys, str(path)))
    assert list(found.items()) == [(f"{path}:{name}", outcome) for name, outcome in FOUND.items()]


def test_each_log_of_a_folder_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in MEMBERS.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "secret").write_bytes(LOG)
    (tmp_path / "logs" / "link.log").symlink_to(tmp_path / "secret")
    folder = tmp_path / "logs"
    found = outcomes(answers(capsys, str(folder)))
    assert list(found.items()) == [(f"{tmp_path / name}", outcome) for name, outcome in FOUND.items()]


def test_a_run_is_the_logs_of_its_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "summary.txt").write_bytes(LOG)
    for cell in ("b", "a"):
        (tmp_path / "scenarios" / cell / "debug").mkdir(parents=True)
        (tmp_path / "scenarios" / cell / "output.log").write_bytes(GOOD)
        (tmp_path / "scenarios" / cell / "debug" / "output.log").write_bytes(LOG)
    found = outcomes(answers(capsys, str(tmp_path)))
    assert list(found) == [str(tmp_path / "scenarios" / cell / "output.log") for cell in ("a", "b")]


@pytest.mark.parametrize("content", [b"", b"\x7fELF" + bytes(400)], ids=["empty", "binary"])
def test_a_folder_or_archive_without_a_log_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.log").write_bytes(content)
    (tmp_path / "a.zip").write_bytes(zipped({"a.log": content}))
    assert main(["explain", str(tmp_path / "folder"), str(tmp_path / "a.zip")]) == 4
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"ERROR: {tmp_path / 'folder'}: is a directory without a log"
    assert second == f"ERROR: {tmp_path / 'a.zip'}: is an archive (zip) without a log"


def test_names_of_members_are_no_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = tmp_path / "outside.log"
    (tmp_path / "in").mkdir()
    for kind, data in {
        "zip": zipped({"../outside.log": GOOD, "/etc/x.log": GOOD}),
        "tar": tarred({"../outside.log": GOOD, "/etc/x.log": GOOD}),
    }.items():
        path = tmp_path / "in" / kind
        path.write_bytes(data)
        assert len(answers(capsys, str(path))) == 2
        assert not outside.exists()


def test_links_in_an_archive_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret, path = tmp_path / "secret", tmp_path / "a.tar"
    secret.write_bytes(LOG)
    with tarfile.open(path, "w") as archive:
        header = tarfile.TarInfo("a.log")
        header.type, header.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(header)
    assert main(["explain", str(path)]) == 4
    assert "without a log" in capsys.readouterr().err


@pytest.mark.parametrize("wrap", [gzip.compress, bz2.compress, lambda data: zipped({"a.log": data})])
def test_a_bomb_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wrap: Callable[[bytes], bytes],
) -> None:
    monkeypatch.setattr(packed, "_FREE_BYTES", 1 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(wrap(b"0" * (8 << 20)))
    assert main(["explain", str(path)]) == 4
    assert "unpacks to more than 1 MiB" in capsys.readouterr().err


def test_layers_are_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = GOOD
    for _ in range(6):
        data = gzip.compress(data)
    (tmp_path / "a.gz").write_bytes(data)
    assert main(["explain", str(tmp_path / "a.gz")]) == 4
    assert "is packed more than 4 times" in capsys.readouterr().err


def test_a_member_with_a_password_costs_only_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(zipped({"a.log": GOOD, "b.log": GOOD}))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(header) + flags] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    found = answers(capsys, str(tmp_path / "a.zip"), code=4)
    assert outcomes(found) == {f"{tmp_path / 'a.zip'}:b.log": "passed"}
