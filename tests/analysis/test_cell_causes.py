"""Known causes that a cell's own facts contradict, leave open or prove."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.analysis.judge import judge_output
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.job import Accelerator, Command, Job
from tests.analysis.judges.judge_cases import SEGV, job, result

LOG = Path(__file__).parents[1] / "data" / "logs" / "openmpi5-ucx-guarded.log"
POINTER = "ucx-gpu-pointer-taken-for-host"


def cell(
    *platforms: str, memory: str | None = None, argv: tuple[str, ...] = ("mpirun", "-np", "2"), **demand: Any
) -> Job:
    facts = {"memory": memory} if memory else {}
    made = job(**{"transport_family": "ucx", "facts": facts, **demand})
    nodes = tuple(
        replace(node, index=index, hardware=replace(node.hardware, accelerator=Accelerator(platform)))
        for index, (node, platform) in enumerate(zip(made.nodes, platforms, strict=True))
    )
    return replace(made, nodes=nodes, command=Command(argv))


def known(of: Job, log: Path = LOG) -> dict[str, KnownFailure]:
    outcome = judge_output(of, result(returncode=139, output=str(log)))
    assert outcome.signature
    assert outcome.signature.key == SEGV
    return {entry.id: entry for entry in outcome.known}


@pytest.mark.parametrize("memory", ["host", "guarded", "managed"])
@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_cause_in_gpu_memory_is_not_shown_for_buffers_elsewhere(platform: str, memory: str) -> None:
    assert POINTER not in known(cell(platform, platform, memory=memory))


def test_a_program_of_ours_without_a_choice_has_its_buffers_on_the_host() -> None:
    assert POINTER not in known(cell("cuda", "cuda"))


def test_a_cause_that_the_cell_proves_is_shown_as_such() -> None:
    assert known(cell("cuda", "cuda", memory="device"))[POINTER].unproven == ()


@pytest.mark.parametrize("tls", ["tcp,rocm_copy", "tcp,cuda"])
def test_a_cause_that_a_setting_contradicts_is_not_shown(tls: str) -> None:
    argv = ("mpirun", "-np", "2", "env", f"UCX_TLS={tls}", "python", "send.py")
    assert POINTER not in known(cell("rocm", "rocm", memory="device", argv=argv))


def test_one_node_without_the_setting_is_enough_for_the_cause() -> None:
    argv = ("mpirun", "-np", "2", "env", "UCX_TLS=tcp", "a", ":", "-np", "2", "env", "UCX_TLS=tcp,cuda", "a")
    assert POINTER in known(cell("rocm", "cuda", memory="device", argv=argv))


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("cuda", True),
        ("host to rocm", True),
        ("DEVICE (D) to HOST (H)", True),
        ("host", False),
        ("rocm-managed", False),
    ],
)
def test_the_memory_that_a_program_of_others_has(printed: str, shown: bool) -> None:
    external = ExternalProgram(("osu_bw",), "osu", memory=printed, check=False)
    assert (POINTER in known(cell("cuda", "rocm", external=external))) is shown


def test_a_program_of_others_that_names_no_memory_leaves_it_open(tmp_path: Path) -> None:
    external = ExternalProgram(("./app",), "command", check=False)
    found = known(cell("cuda", "cuda", external=external))
    assert found[POINTER].unproven == ("its buffers are in GPU memory (memory: device)",)
    assert POINTER not in known(cell("cpu", "cpu", external=external))
    log = tmp_path / "gpu.log"
    log.write_text(f"device cuda:0 is used\n{LOG.read_text()}")
    assert known(cell("cuda", "cuda", external=external), log)[POINTER].unproven == ()
