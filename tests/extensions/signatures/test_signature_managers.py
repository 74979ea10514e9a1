"""Resource managers, containers, Kubernetes, memory and time limits: meanings of texts, and texts without one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.exits import (
    exit_by_code,
    exit_by_signal,
    expand_hosts,
    parse_ranges,
    signal_number,
)
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind
from tests.extensions.signatures.manager_texts import BATCH, CONTAINERS, FLUX, HOSTILE, KUBERNETES, MEMORY, SLURM

MANAGERS = ("slurm", "flux", "batch", "containers", "kubernetes", "kernel_oom")


def heard(parser: str, text: str) -> LogParser:
    reader = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    left = 0
    for number, line in enumerate(text.split("\n"), 1):
        if any(trigger in line.encode() for trigger in reader.triggers):
            left = reader.context + 1
        if left:
            left -= 1
            reader.feed(parse_line(line, number))
    return reader


def matches(parser: str, text: str) -> Sequence[FailureMatch]:
    return heard(parser, text).finish()


def said(parser: str, text: str) -> list[str]:
    return [f"{match.signature.kind.value} {match.signature.key}" for match in matches(parser, text)]


def first(text: str) -> str:
    """Return the most telling match of these parsers."""
    answer = by_priority(match for parser in MANAGERS for match in matches(parser, text))
    return f"{answer[0].kind.value} {answer[0].key} {answer[0].line}" if answer else ""


TEXTS = [
    (parser, text, wanted)
    for parser, texts in zip(MANAGERS, (SLURM, FLUX, BATCH, CONTAINERS, KUBERNETES, MEMORY), strict=True)
    for text, wanted in texts
]


@pytest.mark.parametrize(("parser", "text", "wanted"), TEXTS)
def test_what_a_text_means(parser: str, text: str, wanted: str) -> None:
    assert said(parser, text) == [wanted]


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("slurm", "srun: Job step creation temporarily disabled, retrying (Requested nodes are busy)"),
        ("slurm", "slurmstepd: error: couldn't chdir to `/no': No such file or directory: going to /tmp instead"),
        ("slurm", "srun: job 5 queued and waiting for resources"),
        ("slurm", "srun: error: eio_handle_mainloop: Abandoning IO 60 secs after job shutdown initiated"),
        ("slurm", "srun: error: Timed out waiting for job step to complete"),
        ("slurm", "x.c:3:1: error: execve() is not declared"),
        ("slurm", "slurmstepd: task 3 exited normally"),
        ("flux", '{"timestamp":1.5,"name":"complete","context":{"status":0}}'),
        ("flux", '{"timestamp":1.5,"name":"shell.task-exit","context":{"rank":0,"signaled":0,"exitcode":0}}'),
        ("flux", "0.1s: job.exception type=exec severity=1 something small"),
        ("flux", "flux-shell[0]:  WARN: cpu-affinity: nothing"),
        ("batch", "the solver was Killed by a dragon"),
        ("batch", "Aborted transactions: 0"),
        ("batch", "iteration 7 stopped at residual 10 seconds later"),
        ("batch", "connection terminated after 30 bytes"),
        ("batch", "Exited with exit code 0."),
        ("batch", "timeout: the monitored command is fine"),
        ("batch", "Signal: Segmentation fault (11)"),
        ("containers", "WARNING: could not mount /etc/localtime: not a directory"),
        ("containers", "INFO:    Converting SIF file to temporary sandbox..."),
        ("containers", "slurmstepd: pyxis: imported docker image: ubuntu"),
        ("containers", "Unable to find image 'ubuntu:latest' locally"),
        ("containers", "[ERROR] something of another program"),
        ("kubernetes", "worker-0   1/1   Running   0   3m"),
        ("kubernetes", "rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
        ("kernel_oom", "memory is fine"),
        ("kernel_oom", "bash: fork: retry: Resource temporarily unavailable"),
    ],
)
def test_what_means_nothing(parser: str, text: str) -> None:
    assert said(parser, text) == []


def test_srun_names_ranks_and_hosts() -> None:
    reader = heard("slurm", "srun: error: n[08-10],x: tasks 0-2,5: Bus error")
    signature = reader.finish()[0].signature
    assert (signature.ranks, signature.hosts) == ((0, 1, 2, 5), ("n08", "n09", "n10", "x"))
    assert reader.exits() == tuple(RankExit(rank, signal=7) for rank in (0, 1, 2, 5))


def test_many_hosts_and_ranks_are_all_named_and_endless_numbers_none() -> None:
    assert len(expand_hosts("n[001-500],x")) == 501
    assert expand_hosts(f"n[{'9' * 5000}-3],x") == ("x",)
    assert tuple(parse_ranges(f"0-499,{'9' * 5000}")) == tuple(range(500))


KILL_ON_BAD_EXIT = """srun: error: n1: task 0: {}
srun: launch/slurm: _step_signal: Terminating StepId=1.0
slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-20T20:29:07 ***
srun: error: n1: task 1: {}
srun: Force Terminated StepId=1.0"""


@pytest.mark.parametrize("end", ["Terminated", "Killed"])
@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("Segmentation fault", "crash SIGSEGV 1"),
        ("Exited with exit code 3", "error exit@3 1"),
        ("Killed", "crash SIGKILL 1"),
        ("Out Of Memory", "out_of_memory oom-kill@kernel 1"),
    ],
)
def test_whom_srun_kills_is_a_consequence(how: str, wanted: str, end: str) -> None:
    assert first(KILL_ON_BAD_EXIT.format(how, end)) == wanted
    weights = [match.priority for match in matches("slurm", KILL_ON_BAD_EXIT.format(how, end))]
    assert weights == [Priority.EXIT, Priority.CONSEQUENCE]


def test_a_step_that_is_terminated_because_of_a_task_says_so_before_or_after() -> None:
    """With --label the tasks' own lines take another way than srun's, and may come first."""
    lines = KILL_ON_BAD_EXIT.format("Segmentation fault", "Terminated").split("\n")
    assert first("\n".join((lines[2], lines[1], lines[0]))).startswith("crash SIGSEGV")


TIME_LIMIT = """going
slurmstepd: error: *** JOB 18 ON n1 CANCELLED AT 2026-11-20T20:32:39 DUE TO TIME LIMIT ***
slurmstepd: error: *** STEP 18.0 ON n1 CANCELLED AT 2026-11-20T20:32:39 DUE TO TIME LIMIT ***
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: n1: task 0: {}
srun: error: n1: tasks 1-3: Killed"""


@pytest.mark.parametrize("how", ["Terminated", "Exited with exit code 1", "Segmentation fault"])
def test_what_follows_a_time_limit_is_a_consequence(how: str) -> None:
    assert first(TIME_LIMIT.format(how)) == "timeout time-limit@slurm 2"


@pytest.mark.parametrize(
    "cut",
    [
        "slurmstepd: error: *** JOB 18 ON n1 CANCELLED AT 2026-11-20T20:32:39 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** JOB 18 ON n1 CANCELLED AT 2026-11-20T20:32:39 ***",
        "=>> PBS: job killed: walltime 3621 exceeded limit 3600",
        "timeout: sending signal TERM to command 'mpirun'",
    ],
)
def test_only_what_stands_before_the_end_of_a_job_can_be_its_reason(cut: str) -> None:
    lost = "[n1:1] pml_ucx.c:424  Error: ucp_ep_create(proc=1) failed: Destination is unreachable"
    gone = FailureMatch(Signature(Kind.NETWORK_FAILURE, "lost", lost, 2), Priority.SYMPTOM, fatal=False)
    before = [match for parser in MANAGERS for match in matches(parser, f"going\ngoing\n{cut}")]
    after = [match for parser in MANAGERS for match in matches(parser, cut)]
    assert by_priority([gone, *before])[0] == gone.signature
    assert by_priority([gone, *after])[0].kind is Kind.TIMEOUT


def test_a_failure_before_the_time_limit_wins() -> None:
    assert first("srun: error: n1: task 0: Aborted\n" + TIME_LIMIT.format("Terminated")) == "crash SIGABRT 1"


def test_what_is_told_of_signals_is_kept_with_the_limit() -> None:
    assert matches("slurm", TIME_LIMIT.format("Terminated"))[0].signature.signal == "SIGTERM"
    assert matches("slurm", TIME_LIMIT.split("\nsrun", maxsplit=1)[0])[0].signature.signal is None


def test_memory_explains_who_was_killed() -> None:
    text = (
        "slurmstepd: error: StepId=16.0 exceeded memory limit (236236800 > 209715200), being killed\n"
        "srun: Exceeded job memory limit\n"
        "slurmstepd: error: *** STEP 16.0 ON n1 CANCELLED AT 2026-11-20T20:30:37 ***\n"
        "srun: error: n1: task 0: Killed"
    )
    assert first(text) == "out_of_memory memory-limit@slurm 1"
    assert first("Killed\n[1.2] Out of memory: Killed process 7 (a)") == ("out_of_memory oom-kill@kernel 2")


def test_a_program_that_is_not_there_wins_over_its_exit_code() -> None:
    text = "srun: error: n1: task 0: Exited with exit code 2\nslurmstepd: error: execve(): x: No such file or directory"
    assert first(text) == "launch_failure no-program@x 2"


EVENTS = """flux-job: task(s) exited with exit code 143
{"timestamp":1.4,"name":"shell.task-exit","context":{"localid":1,"rank":81,"wait_status":15,"signaled":15,"exitcode":143}}
{"timestamp":1.5,"name":"complete","context":{"status":36608}}"""


def test_what_somebody_stopped_was_stopped_whatever_its_ranks_said() -> None:
    """Put the event log after the output, so that line numbers do not give the order of events."""
    assert first(EVENTS) == "crash SIGTERM 1"
    cancelled = "9.7s: job.exception type=cancel severity=0 interrupted by ctrl-C"
    assert first(f"{EVENTS}\n{cancelled}") == "timeout cancelled@flux 4"
    noted = matches("batch", f"{EVENTS}\nSTOPPED AT 15 MINUTES")
    assert [(r.priority, r.signature.signal) for r in noted] == [(Priority.RELAYED, "SIGTERM")]
    assert [r.priority for r in matches("batch", "STOPPED AT 15 MINUTES")] == [Priority.LIMIT]
    assert first(f"{EVENTS}\n{cancelled}\nSTOPPED AT 15 MINUTES") == "timeout stopped@operator 5"
    assert heard("flux", EVENTS).exits() == (RankExit(81, signal=15),)


def test_a_crash_in_the_events_of_a_cancelled_job_wins() -> None:
    crash = EVENTS.replace('"signaled":15', '"signaled":11').replace("code 143", "code 139")
    assert first(f"{crash}\n9.7s: job.exception type=cancel severity=0 interrupted") == "crash SIGSEGV 1"


def test_jsrun_names_a_rank() -> None:
    reader = heard(
        "batch", "ERROR:  One or more process (first noticed rank 3) terminated with signal 11 (core dumped)"
    )
    signature = reader.finish()[0].signature
    assert (signature.key, signature.ranks, reader.exits()) == ("SIGSEGV", (3,), (RankExit(3, signal=11),))


@pytest.mark.parametrize(
    "lines",
    [
        ["srun: error: n1: task 0: Bus error", "srun: error: other7: tasks 4-9: Bus error (core dumped)"],
        [f"=>> PBS: job killed: walltime {n} exceeded limit 3" for n in (4, 56)],
        [f"srun: error: Unable to confirm allocation for job {job}: Invalid job id specified" for job in (1, 12345)],
        [f"1.{n}s: job.exception fA{n} type=alloc severity=0 unsatisfiable" for n in (1, 23)],
    ],
)
def test_keys_hold_nothing_of_one_run(lines: list[str]) -> None:
    keys = {r.signature.key for line in lines for parser in ("slurm", "flux", "batch") for r in matches(parser, line)}
    assert len(keys) == 1


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_read_quickly_and_raises_nothing(text: str) -> None:
    import time

    started = time.process_time()
    for parser in MANAGERS:
        reader = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
        for number in range(3):
            reader.feed(parse_line(text, number + 1))
        assert len(reader.finish()) < 100
        reader.exits()
    assert time.process_time() - started < 1


def test_endings() -> None:
    assert signal_number("Segmentation fault (core dumped)") == 11
    assert signal_number("Nonsense") is None
    assert exit_by_code(137).signal == "SIGKILL"
    assert exit_by_code(143).priority is Priority.CONSEQUENCE
    assert exit_by_code(255).key == "exit@255"
    assert exit_by_signal(55).key == "SIG55"
    assert list(parse_ranges("0-2,7")) == [0, 1, 2, 7]
    assert expand_hosts("a,b[1-2,09]-x,c") == ("a", "b1-x", "b2-x", "b09-x", "c")
