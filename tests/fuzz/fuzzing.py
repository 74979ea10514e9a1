"""Trying whatever a reader may meet: some hundred made-up inputs in a normal run, as many as fit into a time if asked.

`HETGPU_FUZZ_SECONDS=60` gives each reader a minute. With `CI` set a normal run tries the same inputs each time, as
everywhere else here; a timed one takes a new seed, which it prints, and `HETGPU_FUZZ_SEED` gives it again. What was
once found lies in `cases/READER/`, and is tried first in every run.
"""

from __future__ import annotations

import os
import re
import resource
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import hypothesis
from hypothesis import strategies as st

from pytest_hetgpu.errors import HetgpuError, MatrixError

T = TypeVar("T")

CASES = Path(__file__).parent / "cases"
SECONDS = float(os.environ.get("HETGPU_FUZZ_SECONDS", "0"))
EXAMPLES = 150
SLOWEST = 20.0
"""Seconds of a processor after which an input counts as one that hangs its reader: none here is large."""
MOST_MEMORY = 600 << 20
"""Bytes by which this process may grow while one input is read."""
# What a terminal obeys: controls but line ends and tabs, and marks of direction.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Hung(Exception):
    """An input that takes its reader too long."""


@contextmanager
def bounded() -> Iterator[None]:
    """In here nothing may take too long, or too much memory."""

    def late(*_: object) -> NoReturn:
        raise Hung(f"not done after {SLOWEST:g} s")

    before, previous = _largest(), signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SLOWEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    assert _largest() - before < MOST_MEMORY


def _largest() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzz(made: st.SearchStrategy[T], check: Callable[[T], object], *, examples: int = EXAMPLES) -> None:
    """Holds `check` against what is made: `examples` of it, or what $HETGPU_FUZZ_SECONDS have room for."""
    quiet: dict[str, Any] = {"deadline": None, "database": None, "print_blob": True}
    quiet["suppress_health_check"] = list(hypothesis.HealthCheck)

    def guarded(value: T) -> None:
        with bounded():
            check(value)

    if not SECONDS:
        hypothesis.settings(max_examples=examples, **quiet)(hypothesis.given(made)(guarded))()
        return
    end, seed = time.monotonic() + SECONDS, int(os.environ.get("HETGPU_FUZZ_SEED") or secrets.randbelow(1 << 32))
    while time.monotonic() < end:
        print(f"HETGPU_FUZZ_SEED={seed}", file=sys.stderr, flush=True)
        fresh = hypothesis.seed(seed)(hypothesis.given(made)(guarded))
        hypothesis.settings(max_examples=min(examples, 60), derandomize=False, **quiet)(fresh)()
        seed += 1


def cases(reader: str) -> list[Path]:
    """Files that once broke a reader, or were thought of as ones that might."""
    found = sorted((CASES / reader).iterdir())
    assert found, f"{CASES / reader} has no case"
    return found


def harmless(text: str) -> None:
    """What is told of an input has nothing that a terminal obeys."""
    found = CONTROLS.search(text)
    assert found is None, f"{found[0]!r} in {text[:300]!r}"


def told(caught: HetgpuError) -> tuple[str, ...]:
    """What an error says, each error of it harmless; there is always one."""
    said = caught.errors if isinstance(caught, MatrixError) else (str(caught),)
    assert said
    for error in said:
        assert error
        harmless(error)
    return said


@st.composite
def damaged(draw: st.DrawFn, samples: list[bytes], words: list[bytes]) -> bytes:
    """A sample with some of it cut, doubled, moved, or replaced by bytes or words that mean something to its reader."""
    data = draw(st.sampled_from(samples))
    # A long sample is looked at through a window: what is done to it must matter.
    start = draw(st.integers(0, max(0, len(data) - 4000)))
    data = data[start : start + 4000] if draw(st.booleans()) else data[:60_000]
    for _ in range(draw(st.integers(1, 8))):
        place = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from((0, 1, 1, 2, 7, 40, 400)))
        piece = draw(
            st.one_of(
                st.sampled_from(words),
                st.binary(max_size=6),
                st.sampled_from(
                    (b"\x1b[2J", b"\x1b]0;x\x07", b"\xff\xfe", b"\0", b"\r", b"\n", b"9" * 400, b"\xe2\x80\xae")
                ),
                st.just(data[place : place + 200]),
                st.just(b""),
            )
        )
        data = data[:place] + piece * draw(st.sampled_from((1, 1, 1, 2, 50))) + data[place + length :]
        data = data[:200_000]
    return data
