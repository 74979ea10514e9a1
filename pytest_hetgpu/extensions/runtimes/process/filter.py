"""A program of this machine that reads a file on stdin and writes to a pipe."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO


@contextmanager
def output_of(argv: Sequence[str], given: IO[bytes]) -> Iterator[IO[bytes]]:
    """Open the stdout of `argv` with the file `given` as its stdin.

    At the end, raise EOFError if the program failed after its output was read whole. Raise OSError if it cannot start.
    A program whose output is not read whole is killed.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=given, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True) as started:
        assert started.stdout is not None
        try:
            yield started.stdout
            left = started.stdout.read(1)
        except BaseException:
            started.kill()
            raise
        if left:
            started.kill()
        elif started.wait():
            raise EOFError(f"{argv[0]} ended with {started.returncode}")
