"""A log gives the same answer behind any prefix and in any envelope as it does bare."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cli.explain.command import run
from tests.cli.explain.wrapping import ONE_LINE_MORE, WRAPS

DATA = Path(__file__).parents[2] / "data" / "logs"
FIELDS = ("outcome", "key", "function", "library", "signal")
#: Known prefixes that name one host or rank for all lines, which the reports of several processes contradict.
NAMING = frozenset(
    (
        *("compose", "compose-times", "colours", "ansible", "kubectl-prefix", "hydra-rank", "ray", "pdsh", "clush"),
        *("openmpi-tag", "openmpi5-tag", "openmpi-timestamp-tag", "openmpi-rank", "srun-label", "srun-label-wide"),
    )
)
# Made up in the forms of CPython's traceback.c and of UCX's src/ucs/debug/debug.c.
TRACEBACK = """\
loading data
epoch 1 of 3

Traceback (most recent call last):
  File "/home/me/train.py", line 41, in <module>
    main()
  File "/home/me/train.py", line 33, in main
    step(model, "x")
ValueError: the batch, of 8 rows, is "too small"
""".splitlines()
UCX = """\
$ mpirun -np 2 ./app
[node1:04057:0:4057] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x10)
==== backtrace (tid:   4057) ====
 0  /opt/ucx/lib/libucs.so.0(ucs_handle_error+0x2dc) [0x7f1a2b3c4d5e]
 1  /opt/ucx/lib/libuct.so.0(uct_mm_ep_am_short+0x5a) [0x7f1a2b3c4d6f]
 2  /opt/ucx/lib/libucp.so.0(ucp_tag_send_nbx+0x3f0) [0x7f1a2b3c4e10]
 3  /opt/ompi/lib/libmpi.so.40(PMPI_Send+0x123) [0x7f1a2b3c4f20]
 4  ./app(main+0x45) [0x401234]
=================================
--------------------------------------------------------------------------
mpirun noticed that process rank 0 with PID 0 on node node1 exited on signal 11 (Segmentation fault).
--------------------------------------------------------------------------
""".splitlines()

# Runs whose only sign of success is their last word.
STEPS = [*(f"step {step} loss {2.4 - step / 10:.4f}" for step in range(6)), "done"]
RANKS = [*STEPS[:-1], "[rank 1] finished", "step 6 loss 1.8000", "[rank 0] finished"]
# Made up after PyTorch's ProcessGroupNCCL.cpp: what a script could not do before is not the reason.
SCRIPT = [
    "Error: environment script not found at:",
    "Path : /opt/env/bin/setup",
    "Error: No such file or directory",
    *("starting", "loading data", "building the model", "starting the training", "waiting for the others"),
    *TRACEBACK[3:-1],
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled cuda error, NCCL 2.18.3",
    "ncclUnhandledCudaError: Call to CUDA function failed.",
    "Last error:",
    "[Proxy Service 4] Failed to execute operation Connect from rank 4, retcode 3",
]


def lines_of(path: Path) -> list[str]:
    """Return the lines of a log; it has no prefixes, and a form feed ends none."""
    return path.read_bytes().decode(errors="replace").replace("\r\n", "\n").removesuffix("\n").split("\n")


def answer(path: Path) -> dict[str, Any]:
    printed: list[str] = []
    run([str(path)], json=True, added=[], print_line=lambda line: printed.append(str(line)))
    found: dict[str, Any] = json.loads(printed[0])
    return found


def compared(found: dict[str, Any], wrap: str = "") -> dict[str, Any]:
    """Return the fields that must be equal; a CSV export has its header before the first line."""
    line = found["line"] and found["line"] - (wrap in ONE_LINE_MORE)
    if wrap in NAMING:
        # The tag of a launcher shows that a program ran.
        outcome = "unknown" if found["outcome"] == "passed" else found["outcome"]
        return {"outcome": outcome, "failed": found["failed"]}
    return {name: found[name] for name in FIELDS} | {"line": line, "failed": found["failed"]}


def check(wrap: str, lines: Sequence[str], expected: dict[str, Any], log: Path) -> None:
    log.write_text(WRAPS[wrap](lines), encoding="utf-8", errors="replace")
    assert compared(answer(log), wrap) == compared(expected, wrap * (wrap in NAMING))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[str], dict[str, Any]]]:
    """Some logs and their answers."""
    log = tmp_path_factory.mktemp("bare") / "a.log"
    logs = [TRACEBACK, UCX, STEPS, RANKS, SCRIPT, *map(lines_of, sorted(DATA.glob("*.log"))[:8])]
    found = []
    for lines in logs:
        log.write_text("\n".join(lines) + "\n", encoding="utf-8")
        found.append((lines, answer(log)))
    assert len({answer["outcome"] for _, answer in found}) > 2
    return found


@pytest.mark.parametrize("wrap", WRAPS)
def test_some_logs(wrap: str, small: list[tuple[list[str], dict[str, Any]]], tmp_path: Path) -> None:
    for lines, expected in small:
        check(wrap, lines, expected, tmp_path / "a.log")


@cache
def cases(corpus: Path) -> dict[Path, dict[str, Any]]:
    """Return the logs of the corpus with their answers."""
    return {path: answer(path) for path in sorted((corpus / "cases").iterdir())}


@pytest.mark.nightly(reason="wraps each log of the corpus in each of some hundred forms: ten minutes")
@pytest.mark.parametrize("wrap", WRAPS)
def test_every_log_of_the_corpus(wrap: str, lacking: Callable[[str, str], None], tmp_path: Path) -> None:
    given = os.environ.get("HETGPU_CORPUS", "")
    if not given:
        lacking("corpus", "no corpus of labelled logs: set HETGPU_CORPUS")
    wrong = {}
    for path, expected in cases(Path(given)).items():
        log = tmp_path / "a.log"
        log.write_text(WRAPS[wrap](lines_of(path)), encoding="utf-8", errors="replace")
        found = compared(answer(log), wrap)
        if found != (wanted := compared(expected, wrap * (wrap in NAMING))):
            wrong[path.name] = (wanted, found)
    assert wrong == {}
