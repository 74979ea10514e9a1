"""Stack dumps of a job that does not end, taken before it is stopped.

`stacks.json`, beside the output, holds the answers of `remote/dump_stacks.py` on each node. Their summary is appended
to output.log. `extensions/signatures/stacks.py` parses those lines, so that the log alone gives the same verdict.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_hetgpu.analysis.logs.records import RecordReader
from pytest_hetgpu.extensions.runtimes.agent.look import unpacked
from pytest_hetgpu.extensions.runtimes.base import StackDumper, TimeoutInfo
from pytest_hetgpu.extensions.signatures.engine.stack_lines import gdb_threads, main_thread, merged
from pytest_hetgpu.extensions.signatures.engine.stacks import (
    Position,
    StackFrame,
    clean,
    facts,
    has_moved,
    parse_facts,
    position_of,
    rank_ranges,
    summarize,
)
from pytest_hetgpu.extensions.signatures.engine.stopped_processes import StoppedProcess
from pytest_hetgpu.model.records import Hello
from pytest_hetgpu.store.files import PRIVATE, write_atomically
from pytest_hetgpu.store.redaction.redact import redact_json

FILE = "stacks.json"
SECONDS = 10.0  # for all of it
GAP = 0.4  # seconds between two samples
_EXTRA_WAIT = 3.0  # further seconds to wait for the answer of a node
_HELLO_BYTES = 4 << 20  # bytes of the output that are searched for hello records of ranks
_DATA_MOVED = 64 << 10  # bytes between two samples from which on a process moves data
_MIN_SILENCE, _SILENCE_SHARE = 2.0, 0.1  # seconds, or share of the time: later output is a sign of life
_MAX_LINES, _MAX_STOPPED = 256, 8
_KERNEL = (
    (re.compile(r"hrtimer_nanosleep|do_nanosleep"), "sleep"),
    (re.compile(r"futex_\w*wait\w*"), "lock"),
    (re.compile(r"(?:do_sys_|poll_schedule_|do_)?(?:poll|select)\w*|ep_poll|do_epoll_wait"), "poll"),
    (re.compile(r"\w*pause"), "pause"),
    (re.compile(r"do_wait|kernel_wait4"), "waitpid"),
    (re.compile(r"\w*(?:pipe|stream|sk_wait|skb|tcp_recv|wait_woken)\w*"), "read"),
)

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RankStacks:
    """The stacks of one rank: its position, and whether it was elsewhere shortly before."""

    position: Position
    trouble: str = ""


def record(
    overdue: TimeoutInfo, others: Mapping[str, StackDumper], output: Path, ranks: int, stacks_file: Path | None = None
) -> None:
    """Dump the stacks of an overdue job, on the launcher's node and all others, and append a summary.

    `ranks` is the number of ranks. The stacks are written to `stacks_file`; None: beside the output. It takes some
    seconds at most and raises nothing but the interruption that stops it.
    """
    try:
        hellos = hello_records(output)
        answers = _query(overdue.look, others, hellos)
        taken = json.dumps(redact_json({"nodes": answers}), indent=1).encode()
        write_atomically(stacks_file or output.with_name(FILE), taken, PRIVATE)
        lines = summarize_stacks(answers, hellos, ranks, overdue)
    except Exception as error:  # noqa: BLE001 - the job must be stopped, even if the dump fails
        lines = [f"hetgpu: no stacks could be taken: {type(error).__name__}: {' '.join(str(error).split())[:300]}"]
    _append(output, lines)


def hello_records(output: Path) -> Mapping[int, Hello]:
    """Return the hello records of ranks near the beginning of the output."""
    reader = RecordReader()
    with output.open("rb") as log:
        for line in log.read(_HELLO_BYTES).split(b"\n"):
            reader.feed(line)
    return reader.finish().hellos


def summarize_stacks(
    answers: Sequence[Answer], hellos: Mapping[int, Hello], ranks: int, overdue: TimeoutInfo
) -> list[str]:
    """Return the summary: one line per rank, and the verdict."""
    seen = {one.position.rank: one for answer in answers for one in _ranks(answer)}
    all_answered = all("ranks" in answer for answer in answers)
    for rank in range(ranks):
        if rank not in seen:
            known = "ended" if rank in hellos else "absent"
            host = hellos[rank].host if rank in hellos else ""
            seen[rank] = RankStacks(Position(rank=rank, host=host, state=known if all_answered else "unseen"))
    found = [seen[rank] for rank in sorted(seen, key=lambda rank: rank or 0)]
    stopped = [one for answer in answers for one in _stopped_processes(answer)]
    lines = [*map(_line, found[:_MAX_LINES]), *(one.line for one in stopped)]
    untraced = [one for one in found if one.trouble]
    if untraced:
        ranks_of = rank_ranges([one.position.rank for one in untraced if one.position.rank is not None])
        lines.append(f"hetgpu: only kernel facts for rank{'s' * (len(untraced) > 1)} {ranks_of}: {untraced[0].trouble}")
    return [*lines, *_verdict([one.position for one in found], overdue, stopped)]


def _stopped_processes(answer: Answer) -> Iterable[StoppedProcess]:
    """Yield the launchers and daemons of a node that a signal has stopped."""
    host = clean(str(answer.get("host", "")).partition(".")[0])
    stopped = answer.get("stopped", ())
    for one in stopped[:_MAX_STOPPED] if isinstance(stopped, list) else ():
        with suppress(KeyError, TypeError, ValueError):
            yield StoppedProcess(clean(str(one["name"])), host, int(one["pid"]))


def _verdict(positions: Sequence[Position], overdue: TimeoutInfo, stopped: Sequence[StoppedProcess]) -> list[str]:
    """Return `hetgpu: stuck after 4 s, nothing moved: ...`, or slow; nothing if no rank is known.

    A job with a stopped launcher does not end, whatever its ranks do.
    """
    if stopped:
        where = f"; {summary.sentence}" if (summary := summarize(positions)).sentence else ""
        return [f"hetgpu: stuck after {overdue.seconds:.0f} s: {'; '.join(one.sentence for one in stopped)}{where}"]
    if not any(one.known and one.state not in ("ended", "absent") for one in positions):
        return []
    summary = summarize(positions)
    moved = [one.rank for one in positions if one.moved and one.rank is not None]
    after = f"after {overdue.seconds:.0f} s"
    if moved:
        return [f"hetgpu: slow {after}, rank{'s' * (len(moved) > 1)} {rank_ranges(moved)} moved: {summary.sentence}"]
    # Ranks that wait in different places will not meet any more; ranks in one place may only be slow.
    silence = overdue.seconds / 2
    if summary.apart:
        silence = min(silence, max(_MIN_SILENCE, overdue.seconds * _SILENCE_SHARE))
    if overdue.quiet < silence:
        return [f"hetgpu: slow {after}, last output {overdue.quiet:.0f} s before: {summary.sentence}"]
    return [f"hetgpu: stuck {after}, nothing moved: {summary.sentence}"]


def _line(seen: RankStacks) -> str:
    one = seen.position
    who = f"rank {one.rank}" + (f" on {clean(one.host)}" if one.host else "") + (f" (pid {one.pid})" if one.pid else "")
    return f"hetgpu: stack: {who} {one.in_words()} [{facts(one)}]"


def _query(
    launcher: StackDumper, others: Mapping[str, StackDumper], hellos: Mapping[int, Hello]
) -> list[dict[str, Any]]:
    """Return the answers of all nodes, asked in parallel. This thread asks the launcher, so interrupts reach it."""
    request = {"hellos": [[rank, hello.pid, hello.host] for rank, hello in hellos.items()], "gap": GAP}
    answers: list[dict[str, Any]] = [{"node": name} for name in ("launcher", *others)]

    def ask(place: int, of: StackDumper) -> None:
        try:
            answers[place].update(unpacked(of(request, SECONDS)))
        except Exception as error:  # noqa: BLE001 - the other nodes may answer
            answers[place]["trouble"] = f"{type(error).__name__}: {error}"

    threads = [
        threading.Thread(target=ask, args=(place, of), name="hetgpu stacks", daemon=True)
        for place, of in enumerate(others.values(), 1)
    ]
    for thread in threads:
        thread.start()
    ask(0, launcher)
    for thread in threads:
        thread.join(SECONDS + _EXTRA_WAIT)
    return list(map(dict, answers))


def _ranks(answer: Answer) -> Iterable[RankStacks]:
    host = clean(str(answer.get("host", "")).partition(".")[0])
    ranks = answer.get("ranks", ())
    for one in ranks if isinstance(ranks, list) else ():
        try:
            yield _rank_stacks(one, host)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            continue


def _rank_stacks(one: Mapping[str, Any], host: str) -> RankStacks:
    """Return the stacks of one rank from the answer of its node."""
    rank, pid, samples = int(one["rank"]), int(one["pid"]), list(one["samples"])
    last = samples[-1] if samples else {}
    stacks = [frames for sample in samples if (frames := _frames(sample, pid))]
    position = _last_whole([position_of(frames) for frames in stacks]) if stacks else _by_kernel(last)
    state = {"T": "stopped", "Z": "ended", "X": "ended"}.get(str(last.get("state", "")), "")
    if not last:
        state = "unseen"
    moved = not state and (_moves_data(samples) or any(has_moved(stacks[0], other) for other in stacks[1:]))
    position = _normalized(position)._replace(rank=rank, host=host, pid=pid, state=state, moved=moved)
    return RankStacks(
        position, "" if stacks or state == "ended" or not samples else _reason(samples[0].get("trouble") or ())
    )


def _last_whole(positions: Sequence[Position]) -> Position:
    """Return the last position from a stack with its native frames; they are unavailable in some samples."""
    return next((one for one in reversed(positions) if not one.shallow), positions[-1])


def _reason(messages: Iterable[object]) -> str:
    """Return the reason why no stacks were taken, in fixed words. The output of the tools is in stacks.json."""
    texts = " ".join(map(str, messages))
    if not texts:
        return "neither py-spy nor gdb is there"
    if re.search(r"not permitted|ermission denied|EPERM|ptrace", texts):
        return "tracing is not allowed there (kernel.yama.ptrace_scope, or a container without SYS_PTRACE)"
    return f"py-spy or gdb did not work there (see {FILE})"


def _normalized(position: Position) -> Position:
    """Return a position as it is parsed again from its line in the output."""
    return parse_facts(Position(), facts(position))


def _frames(sample: Mapping[str, Any], pid: int) -> Sequence[StackFrame]:
    """Return the stack of the main thread, innermost frame first; empty if none was taken."""
    native = main_thread(gdb_threads(str(sample["text"])), pid) if "text" in sample else ()
    if "threads" not in sample:
        return native
    threads = {
        int(thread["tid"] or 0): [
            StackFrame(
                str(name),
                library=str(module),
                file="" if module or file == "?" else str(file),
                line=int(line),
                python=not module and file != "?",
            )
            for name, file, line, module in thread["frames"]
        ]
        for thread in sample["threads"]
    }
    spied = main_thread(threads, pid)
    return merged(spied, native) if native else spied


def _by_kernel(sample: Mapping[str, Any]) -> Position:
    """Return the position of a process by the kernel function in which it sleeps, if it sleeps."""
    wchan = str(sample.get("wchan", ""))
    doing = next((word for form, word in _KERNEL if form.fullmatch(wchan)), "")
    return Position(doing=doing, shallow=True)


def _moves_data(samples: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a process read or wrote much data between the samples."""
    counts = [sample["io"] for sample in samples if isinstance(sample.get("io"), int)]
    return len(counts) > 1 and counts[-1] - counts[0] > _DATA_MOVED


def _append(output: Path, lines: Sequence[str]) -> None:
    """Append lines to the output, after the end of a line, in one write: ranks may be writing, too."""
    if not lines:
        return
    try:
        with output.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 1))
            begin = "" if log.read(1) in (b"", b"\n") else "\n"
        with output.open("ab", buffering=0) as log:
            log.write((begin + "".join(f"{line}\n" for line in lines)).encode(errors="replace"))
    except OSError:
        return
