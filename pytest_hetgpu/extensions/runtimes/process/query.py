"""Read-only commands of this machine that list hosts (scontrol, sinfo, kubectl). Each runs once."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from pytest_hetgpu.errors import NotHere

_SECONDS = 30.0
_LONGEST = 120


def short(argv: Sequence[str]) -> str:
    """Return a command for a message: as a whole, or its program alone if an argument is itself a program."""
    whole = " ".join(argv)
    return whole if len(whole) <= _LONGEST and "\n" not in whole else argv[0]


def ask(commands: Sequence[tuple[str, ...]]) -> bytes:
    """Return the output of the first of `commands` that succeeds; NotHere lists the failure of each."""
    told: list[str] = []
    for command in commands:
        name = short(command)
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            told.append(f"`{name}` did not end within {_SECONDS:g} s")
        except OSError as error:
            told.append(f"`{name}` cannot be started: {error.strerror or error}")
        else:
            if done.returncode == 0 and done.stdout.strip():
                return done.stdout
            said = next(reversed(done.stderr.decode(errors="replace").strip().splitlines()), "")[:300]
            told.append(f"`{name}` ended with {done.returncode}: {said or 'it printed nothing'}")
    raise NotHere("; ".join(dict.fromkeys(told)))
