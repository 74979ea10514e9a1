"""What becomes of a run that something happens to: `.venv/bin/python benchmarks/faults.py --runs 10`.

Runs tests/faults so many times, each time with another seed and so at other moments, and prints the table of faults of
docs/reference/reliability.md; `--write docs/reference/reliability.md` puts it there. Exits with 1 unless every check of
every run was met.
Needs what these tests need: a stack, a Docker engine and its bases, root (to mount a small disk, to start an engine).
"""

from __future__ import annotations

import argparse
import collections
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.written import table, write  # noqa: E402

CHECKS = ("kept", "report", "resumed", "left")
HEAD = (
    "Fault",
    "outcome of the cell in flight",
    "cleaned up after (s)",
)
Noted = dict[str, str]


def session(seed: int, options: argparse.Namespace) -> Iterator[Noted]:
    """What was noted of each fault of one run of the tests; complaints go to the terminal."""
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder, "junit.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "tests/faults",
            "-q",
            "-p",
            "no:cacheprovider",
            "--junitxml",
            str(junit),
        ]
        side = ["-n", str(options.workers), "--dist", "loadfile"] if options.workers > 1 else []
        chosen = ["-k", options.only] if options.only else []
        environment = {**os.environ, "HETGPU_FAULT_SEED": str(seed)}
        done = subprocess.run(
            [*command, *side, *chosen], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stdout[-20_000:], done.stderr[-2000:], file=sys.stderr, flush=True)
        if not junit.exists():
            sys.exit("there are no results")
        for case in ET.parse(junit).iter("testcase"):
            yield {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")}


def row(fault: str, noted: list[Noted]) -> tuple[str, ...]:
    """Return the row of a fault: outcomes of the cell, checks that were not met, the median and the longest time."""
    runs = len(noted)
    met = {check: sum(one.get(check) == "yes" for one in noted) for check in CHECKS}
    became = collections.Counter(kind for one in noted for kind in one.get("became", "?").split(", "))
    told = ", ".join(f"{kind} ({count})" if len(became) > 1 else kind for kind, count in became.most_common())
    seconds = sorted(float(one["seconds"]) for one in noted if "seconds" in one)
    median, longest = (f"{seconds[len(seconds) // 2]:.1f}", f"{seconds[-1]:.1f}") if seconds else ("?", "?")
    times = median if median == longest else f"{median} (max {longest})"
    unmet = "".join(f"; {check} in {count} of {runs} only" for check, count in met.items() if count < runs)
    return fault, told.replace("|", "\\|") + unmet, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1, help="of every fault (1)")
    parser.add_argument("--workers", type=int, default=2, help="tests side by side (2)")
    parser.add_argument("--only", help="faults that fit, as pytest's -k")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table there, too")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    noted: dict[str, list[Noted]] = {}
    began = time.monotonic()
    for number in range(options.runs):
        print(f"run {number + 1} of {options.runs}, HETGPU_FAULT_SEED={options.seed + number}", file=sys.stderr)
        for one in session(options.seed + number, options):
            if "fault" in one:
                noted.setdefault(one["fault"], []).append(one)
    text = table(HEAD, [row(fault, found) for fault, found in sorted(noted.items())])
    good = all(one.get(check) == "yes" for found in noted.values() for one in found for check in CHECKS)
    told = f"Each test ran {options.runs} times: seed {options.seed}, {os.cpu_count()} cores, Python "
    told += f"{platform.python_version()}, {(time.monotonic() - began) / options.runs:.0f} s per run. "
    text = f"{told}{'Every' if good else 'Not every'} check was met.\n\n{text}"
    print(text)
    if options.write:
        write(options.write, "benchmarks/faults.py", text)
    sys.exit(not (good and noted))


if __name__ == "__main__":
    main()
