"""What it costs to read large logs of failures, beside `grep -c`: `.venv/bin/python benchmarks/repeated.py LOG...`.

Each log is repeated up to `--megabytes`. Every copy has new times, pids, addresses, hosts, ranks and numbers. So no
line with a number repeats verbatim. It prints 1e6 bytes a second of one core, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EXPLAIN = [sys.executable, "-m", "pytest_hetgpu.cli", "explain", "--json"]
LEAST = 60.0
"""1e6 bytes a second that every log has to reach."""
_VARYING = re.compile(rb"(?<=0x)[0-9a-f]{4,}|\d{2,}|(?<=[Rr]ank )\d|(?<=node)\d|(?<=^\[)\d(?=\])", re.MULTILINE)
# A digit for each of 256 bytes.
_DECIMAL = (b"0123456789" * 26)[:256]
_HEXADECIMAL = b"0123456789abcdef" * 16


class Cost(NamedTuple):
    """Cost of one process: 1e6 bytes a second of processor time, and its peak memory in 1e6 bytes."""

    speed: float
    memory: float


def repeated(log: Path, target: Path, size: int, seed: int = 1) -> Path:
    """Write copies of a log to `target` until it has `size` bytes; the first is the log itself."""
    text = log.read_bytes()
    text += b"" if text.endswith(b"\n") else b"\n"
    copies = _Copies(text, random.Random(seed))
    written = 0
    with target.open("wb") as file:
        while written < size:
            written += file.write(copies.another() if written else text)
    return target


class _Copies:
    """Copies of a text with other numbers of the same lengths. Within a copy equal numbers stay equal."""

    def __init__(self, text: bytes, chance: random.Random) -> None:
        self._chance = chance
        found = list(_VARYING.finditer(text))
        ends = [0, *(match.end() for match in found)]
        starts = [*(match.start() for match in found), len(text)]
        self._parts = [b""] * (2 * len(found) + 1)
        self._parts[::2] = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        numbers = [match[0] for match in found]
        decimal: dict[bytes, bool] = {}
        for is_decimal in (True, False):
            different = dict.fromkeys(number for number in numbers if number.isdigit() == is_decimal)
            decimal |= dict.fromkeys(different, is_decimal)
        place = {number: index for index, number in enumerate(decimal)}
        self._places = itemgetter(*(place[number] for number in numbers), 0) if numbers else None
        self._formats = [
            "".join(f"{len(number)}s" for number in decimal if decimal[number] == kind) for kind in (True, False)
        ]

    def another(self) -> bytes:
        """Return a copy; a decimal number is decimal again, a hexadecimal one hexadecimal."""
        if self._places is None:
            return self._parts[0]
        drawn: list[bytes] = []
        for form, digits in zip(self._formats, (_DECIMAL, _HEXADECIMAL), strict=True):
            drawn += struct.unpack(form, self._chance.randbytes(struct.calcsize(form)).translate(digits))
        self._parts[1::2] = self._places(drawn)[:-1]
        return b"".join(self._parts)


def cost(command: list[str], size: int) -> Cost:
    """Run a command to its end."""
    # As users have it: with bytecode kept.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPATH"] = str(ROOT)
    # Not to /dev/null: grep then ends at the first match.
    with tempfile.TemporaryFile() as out:
        pid = os.posix_spawnp(command[0], command, environ, file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)])
        _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(size / 1e6 / max(usage.ru_utime + usage.ru_stime, 1e-3), usage.ru_maxrss * 1024 / 1e6)


def costs(logs: Sequence[Path], size: int) -> Iterator[tuple[Path, Cost, Cost]]:
    """Yield each log with the cost of explaining it and of `grep -c`, repeated to `size` bytes."""
    with tempfile.TemporaryDirectory(prefix="hetgpu-") as folder:
        for log in logs:
            large = repeated(log, Path(folder) / "large.log", size)
            written = large.stat().st_size
            yield log, cost([*EXPLAIN, str(large)], written), cost(["grep", "-ac", "rror", str(large)], written)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--least", type=float, default=0.0, metavar="MB/S", help="exit with 1 if a log is slower")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="print the N slowest only")
    options = parser.parse_args()
    began = time.monotonic()
    found = sorted(costs(options.logs, options.megabytes * 1_000_000), key=lambda one: one[1].speed)
    for log, ours, theirs in found[: options.slowest or None]:
        print(f"{log.name:24} {ours.speed:7.1f} MB/s {ours.memory:6.0f} MB   grep -c {theirs.speed:6.0f} MB/s")
    speeds, tenth = [ours.speed for _, ours, _ in found], len(found) // 10
    print(
        f"slowest {speeds[0]:.0f}, a tenth under {speeds[tenth]:.0f}, median {statistics.median(speeds):.0f}, "
        f"fastest {speeds[-1]:.0f} MB/s; at most {max(ours.memory for _, ours, _ in found):.0f} MB of memory"
    )
    slow = sum(ours.speed < options.least for _, ours, _ in found)
    took = time.monotonic() - began
    print(f"{len(found)} logs of {options.megabytes} MB in {took:.0f} s, {slow} under {options.least:g} MB/s")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
