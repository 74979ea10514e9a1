"""Timed iterations whose results are all verified, outside the timed part. For MPI and for torch. Needs Python 3.8."""

from __future__ import annotations

import argparse
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Sequence

from records import WrongElements


class Steps(NamedTuple):
    """How operations of a library are prepared and released, how ranks meet, and how wrong elements are found.

    `settle` ends the work of an accelerator, whose calls return before it.
    """

    prepare: Callable[[Sequence[Any]], None]
    release: Callable[[Sequence[Any]], None]
    meet: Callable[[], object]
    settle: Callable[[], object]
    wrong_elements: Callable[[Sequence[Any], int], Iterator[WrongElements]]


def measure(
    operation: Any, options: argparse.Namespace, repeat: int, found: List[WrongElements], steps: Steps
) -> float:
    """Time iterations on every rank, and add wrong elements to `found`. Return the seconds of all iterations.

    Iterations run without a pause as long as each has a result of its own; then all results are verified. After the
    first repeat, the connections exist. Only buffers are new, and one iteration on each warms them up.
    """
    seconds, done = 0.0, 0
    every = operation.with_results(options.iterations)
    warmup = max(min(options.warmup, 1) if repeat else options.warmup, len(every) * bool(options.warmup))
    steps.prepare(every)
    for number in range(warmup):
        every[number % len(every)].step()
    steps.release(every)
    while done < options.iterations:
        part = every[: options.iterations - done]
        steps.prepare(part)
        calls = [one.step for one in part]
        steps.meet()
        started = time.perf_counter()
        for call in calls:
            call()
        steps.settle()
        seconds += time.perf_counter() - started
        steps.release(part)
        if operation.sweeps:
            found += steps.wrong_elements(part, done)
        done += len(part)
    return seconds
