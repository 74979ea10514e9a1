"""Reasons of a rank's exit, by signal or exit code: the same for all launchers and shells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import Priority
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.model.verdict import Kind

_MOST_RANGED = 100_000
_LONGEST_NAMES = 65_536
_LONGEST_NUMBER = 7

# glibc's strsignal(3): string/../sysdeps/generic/siglist.h.
_TEXTS = {
    "Hangup": 1,
    "Interrupt": 2,
    "Quit": 3,
    "Illegal instruction": 4,
    "Trace/breakpoint trap": 5,
    "Aborted": 6,
    "Bus error": 7,
    "Floating point exception": 8,
    "Killed": 9,
    "User defined signal 1": 10,
    "Segmentation fault": 11,
    "User defined signal 2": 12,
    "Broken pipe": 13,
    "Alarm clock": 14,
    "Terminated": 15,
    "Stack fault": 16,
    "CPU time limit exceeded": 24,
    "File size limit exceeded": 25,
    "Virtual timer expired": 26,
    "Profiling timer expired": 27,
    "I/O possible": 29,
    "Power failure": 30,
    "Bad system call": 31,
}
# A process that cuts a job off prints so in the job's own output, at that time. A symptom before that line may be why
# the job took so long. A lost peer after it is a consequence. LIMIT is for messages outside the output.
CUT_OFF = Priority.SYMPTOM
EXTERNAL_SIGNALS = frozenset((1, 2, 15))
_KILL, _XCPU = 9, 24


class ExitReason(NamedTuple):
    """Reason of an exit, as fields of a signature."""

    kind: Kind
    key: str
    priority: Priority = Priority.EXIT
    signal: str | None = None
    detail: str | None = None


def signal_number(text: str) -> int | None:
    """Return the number for strsignal's text: 11 for `Segmentation fault`, also with `(core dumped)`; else None."""
    return _TEXTS.get(text.replace("(core dumped)", "").strip().rstrip("."))


def exit_by_signal(number: int) -> ExitReason:
    """Return death by a signal; signals that people and launchers send explain nothing."""
    name = signal_name(number)
    if number == _XCPU:
        return ExitReason(Kind.TIMEOUT, "cpu-time@ulimit", Priority.LIMIT, name, "CPU time limit exceeded")
    return ExitReason(Kind.CRASH, name, Priority.CONSEQUENCE if number in EXTERNAL_SIGNALS else Priority.EXIT, name)


def exit_by_code(code: int) -> ExitReason:
    """Return exit with a code; above 128 a shell reports a signal, 126 and 127 mean that no program was run."""
    if 128 < code < 128 + 65:
        return exit_by_signal(code - 128)
    kind = Kind.LAUNCH_FAILURE if code in (126, 127) else Kind.ERROR
    return ExitReason(kind, f"exit@{code}", detail=f"exit code {code}")


def is_killed(reason: ExitReason) -> bool:
    """Return whether SIGKILL ended it, which a launcher also sends to remaining ranks."""
    return reason.signal == signal_name(_KILL)


def parse_ranges(ranges: str) -> Iterator[int]:
    """Yield the numbers of `0-3,5`, up to a limit; text that is no number is skipped."""
    found = re.finditer(r"(?<!\d)(\d{1,7})(?!\d)(?:-(\d{1,7})(?!\d))?", ranges)
    parts = (range(int(part[1]), int(part[2] or part[1]) + 1) for part in found)
    return islice(chain.from_iterable(parts), _MOST_RANGED)


def expand_hosts(names: str) -> tuple[str, ...]:
    """Return the hosts of a Slurm list like `node[1-3,07],login`, zeros kept, up to a limit."""
    found: list[str] = []
    for part in re.findall(r"[^,\[\]]*(?:\[[^\[\]]*\][^,\[\]]*|(?=,|$))", names[:_LONGEST_NAMES]):
        head, bracket, rest = part.partition("[")
        inside, _, tail = rest.partition("]")
        if not bracket:
            found += [head] if head else []
            continue
        for piece in inside.split(","):
            first, _, last = piece.partition("-")
            short = max(len(first), len(last)) <= _LONGEST_NUMBER
            if short and first.isdecimal() and (last or first).isdecimal():
                ends = int(first), min(int(last or first), int(first) + _MOST_RANGED - len(found))
                found += [f"{head}{number:0{len(first)}d}{tail}" for number in range(ends[0], ends[1] + 1)]
    return tuple(found[:_MOST_RANGED])
