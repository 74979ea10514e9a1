"""A run's own verdict and `hetgpu explain` on its output: the same outcome, key and known failures."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.analysis.judge import judge_output
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.model.job import Command, Hardware, Job, Node, Requirements
from pytest_hetgpu.model.outcome import Outcome, RunResult
from tests.analysis.interpret_runs import foreign, greetings, record
from tests.analysis.judges.judge_cases import STACK

STOPPED_AFTER_ITS_TIME = 124
Verdict = tuple[str, str | None, tuple[str, ...]]


def live(log: Path, code: int, ranks: int = 1) -> Outcome:
    """Judge a log as the output of a user's program on so many ranks."""
    program = foreign("command", "app", proof=False, check=False, ranks=None, memory="")
    node = Node(0, Hardware("cpu"), "localhost", ranks)
    asked = Requirements(ranks, STACK, "auto", ("*",), (), "command", external=program)
    job = Job("m", "c", "c", {}, (node,), Command(("mpirun",)), 60.0, asked)
    result = RunResult(("mpirun",), code, str(log), 0.0, 2.0)
    stopped = code == STOPPED_AFTER_ITS_TIME
    return judge_output(job, replace(result, returncode=None, timed_out=True, quiet=2.0) if stopped else result)


def verdicts(log: Path, code: int, ranks: int = 1) -> tuple[Verdict, Verdict]:
    """Return both verdicts on a log: outcome, key, and ids of known failures."""
    told, found = explain(log, known_failures()), live(log, code, ranks)
    return (
        (told.outcome.value, told.signature.key if told.signature else None, tuple(one.id for one in told.known)),
        (found.kind.value, found.signature.key if found.signature else None, tuple(one.id for one in found.known)),
    )


def test_both_judge_every_lab_log_alike(lacking: Callable[[str, str], None], tmp_path: Path) -> None:
    folder = os.environ.get("HETGPU_CORPUS", "")
    if not folder:
        lacking("corpus", "no corpus of labelled logs: set HETGPU_CORPUS")
    labels = yaml.load((Path(folder) / "labels.yaml").read_text(), Loader=yaml.CSafeLoader)
    differ = {}
    for label in labels:
        if label["origin"] != "lab":
            continue
        code = label.get("exit_code", 0 if label["outcome"] == "passed" else 1)
        output = tmp_path / f"{label['id']}.log"
        ended = record(t="exit", rank=0, code=0, at=2.0) if label["outcome"] == "passed" else ""
        output.write_bytes(
            greetings(1, library="", exits=True).encode() + (Path(folder) / label["file"]).read_bytes() + ended.encode()
        )
        told, found = verdicts(output, code)
        if told != found:
            differ[label["id"]] = (told, found)
    assert differ == {}


BANNER = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode -1.\n"


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        # srun ends the other ranks by SIGKILL after a call of MPI_Abort.
        (f"{BANNER}srun: error: c2: task 1: Killed\nsrun: error: c1: task 0: Killed\n", 137, "MPI_Abort@-1"),
        (f"[1] X assert fail in put() [a.c:1]\n{BANNER}srun: error: c2: task 1: Killed\n", 137, "assert@put"),
        ("srun: error: c2: task 1: Killed\n", 137, "SIGKILL"),
        ("srun: error: c1: task 0: Exited with exit code 3\nsrun: error: c2: task 1: Killed\n", 3, "exit@3"),
        (
            "solver: matrix is singular\n[vm:5] [[3,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in "
            "file ../orte/util/show_help.c at line 501\nhetgpu: the launcher ended with exit code 77\n",
            77,
            "exit@77",
        ),
        ("nothing\nhetgpu: the launcher ended with exit code 5\n", 5, "exit@5"),
    ],
)
def test_what_a_launcher_does_after_a_failure_is_no_cause(tmp_path: Path, text: str, code: int, key: str) -> None:
    output = tmp_path / "output.log"
    output.write_text(greetings(2, library="", exits=True) + text)
    told, found = verdicts(output, code, ranks=2)
    assert told == found
    assert told[1] == key


def test_a_stop_from_outside_comes_before_what_it_leads_to(tmp_path: Path) -> None:
    agent = "W1126 23:12:19.772000 13243 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, "
    text = f"{agent}shutting down workers\nterminate called without an active exception\nFatal Python error: Aborted\n"
    output = tmp_path / "output.log"
    output.write_text(text)
    assert [one[:2] for one in verdicts(output, 1)] == [("crash", "stopped@torchrun")] * 2
    output.write_text(f"{text}rc=124\n")
    assert [one[:2] for one in verdicts(output, 1)] == [("timeout", "time-limit@timeout")] * 2


def test_ranks_that_left_before_the_others_are_an_error_of_the_program(tmp_path: Path) -> None:
    lost = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "ddp.py", line 9, in <module>\n'
        "[rank0]: RuntimeError: [/g/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:29617: Connection reset by "
        "peer\n"
    )
    ends = record(t="exit", rank=1, code=0, at=2.0), record(t="exit", rank=0, code=1, at=3.0)
    output = tmp_path / "output.log"
    output.write_text(greetings(2, library="", exits=True) + ends[0] + lost + ends[1])
    told, found = verdicts(output, 1, ranks=2)
    assert told == found == ("error", "rank-left-early@program", ())
    # A rank that crashed explains a lost peer as well.
    crashed = record(t="exit", rank=1, signal=11, at=2.0)
    output.write_text(greetings(2, library="", exits=True) + crashed + lost + ends[1])
    assert verdicts(output, 1, ranks=2)[1][0] == "crash"
