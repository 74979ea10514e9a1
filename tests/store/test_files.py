"""Files that a user names are plain files; nothing else makes a reader wait, or never end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pytest_hetgpu.store.files import NotPlainFile, open_input, read_input


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")
    (tmp_path / "link").symlink_to(path)
    assert read_input(path) == read_input(tmp_path / "link") == b"text"


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_a_pipe_of_the_shell_is_read_to_its_end(folder: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    try:
        with open_input(Path(folder, str(reader))) as file:
            assert os.get_blocking(file.fileno())
            assert file.read() == b"text"
    finally:
        os.close(reader)


def test_what_is_no_file_is_refused_in_words(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe:[1]")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for path, words in {
            tmp_path / "pipe:[1]": "a named pipe",
            tmp_path / "socket": "a socket",
            Path("/dev/zero"): "a device",
        }.items():
            with pytest.raises(NotPlainFile) as caught:
                open_input(path)
            assert caught.value.strerror == f"it is {words}, not a file"
    with pytest.raises(IsADirectoryError):
        open_input(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_input(tmp_path / "none")


def test_a_pipe_that_replaces_the_file_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    os.mkfifo(path)
    plain = Path(__file__).stat()
    monkeypatch.setattr(Path, "stat", lambda _: plain)
    with pytest.raises(NotPlainFile):
        open_input(path)
