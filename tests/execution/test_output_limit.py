"""The limit on a cell's output, with real writers."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_hetgpu.execution.output_limit import _punch, limited

MIB = 1 << 20
WRITER = (
    "import os, sys\n"
    "line = b'%s %07d ' + b'.' * 100 + b'\\n'\n"
    "for start in range(0, int(sys.argv[2]), 50):\n"
    "    os.write(1, b''.join(line % (sys.argv[1].encode(), n) for n in range(start, start + 50)))\n"
)


def write(output: Path, lines: int, writers: int = 1) -> int:
    """Bytes that so many processes write to one file, opened as runtimes do it."""
    with output.open("ab") as file:
        crowd = [
            subprocess.Popen([sys.executable, "-S", "-c", WRITER, f"w{number}", str(lines)], stdout=file)
            for number in range(writers)
        ]
        assert [one.wait() for one in crowd] == [0] * writers
    return output.stat().st_size


def test_the_beginning_and_the_end_are_kept_in_whole_lines(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    with limited(output, 2 * MIB) as finish:
        size = write(output, 60_000)
        left_out = finish()
    lines = output.read_bytes().splitlines(keepends=True)
    note = f"hetgpu: {left_out} bytes of output are left out here, of {size}\n".encode()
    assert lines.count(note) == 1
    place = lines.index(note)
    kept = [int(line.split()[1]) for line in lines if line != note]
    assert kept[:place] == list(range(place))
    assert kept[place:] == list(range(60_000 - len(kept[place:]), 60_000))
    assert left_out == size - (output.stat().st_size - len(note))
    assert 1.9 * MIB < output.stat().st_size <= 2 * MIB + len(note)


def test_the_disk_is_given_back_while_it_is_written(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    with limited(output, 2 * MIB) as finish:
        size = write(output, 200_000)
        end = time.monotonic() + 10
        while output.stat().st_blocks * 512 > 4 * MIB and time.monotonic() < end:
            time.sleep(0.01)
        on_disk = output.stat().st_blocks * 512
        assert size > 20 * MIB
        assert finish() > size - 3 * MIB
    output.write_bytes(b"x" * 4 * MIB)
    if not _punch(output, 0, MIB):
        pytest.skip("this file system makes no holes")
    assert on_disk <= 4 * MIB


def test_little_output_stays_as_it_is(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    for limit in (2 * MIB, math.inf):
        with limited(output, limit) as finish:
            write(output, 100)
            before = output.read_bytes()
            assert finish() == 0
        assert output.read_bytes() == before
    with limited(tmp_path / "none.log", MIB) as finish:
        assert finish() == 0


def test_eight_writers_lose_nothing_and_do_not_mix_lines(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    with limited(output, math.inf) as finish:
        write(output, 20_000, writers=8)
        assert finish() == 0
    found: dict[bytes, list[int]] = {}
    for line in output.read_bytes().splitlines():
        writer, number, dots = line.split()
        assert dots == b"." * 100
        found.setdefault(writer, []).append(int(number))
    assert found == {b"w%d" % number: list(range(20_000)) for number in range(8)}


def test_all_that_is_left_out_is_searched_first(tmp_path: Path) -> None:
    output, seen = tmp_path / "output.log", bytearray()
    with limited(output, 2 * MIB, seen.extend) as finish:
        write(output, 200_000)
        assert finish()
    lines = {line for line in bytes(seen).splitlines() if line.startswith(b"w0 ")}
    kept = set(output.read_bytes().splitlines())
    every = {b"w0 %07d " % number + b"." * 100 for number in range(200_000)}
    assert every <= lines | kept
