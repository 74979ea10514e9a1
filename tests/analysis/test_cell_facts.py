"""The facts of a cell: from its job, and from its log what the job leaves open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.analysis.cell_facts import cell_facts
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.job import Accelerator, Command, Fabric, Hardware, Job, Node
from tests.analysis.judges.judge_cases import evidence, job

OTHERS = ExternalProgram(("./app",), "command", check=False)


def cell(*nodes: Hardware, argv: tuple[str, ...] = ("/opt/bin/mpirun",), **demand: Any) -> Job:
    placed = tuple(Node(index, hardware, "localhost", 1) for index, hardware in enumerate(nodes))
    return replace(job(**demand), nodes=placed, command=Command(argv))


def gpu(platform: str, *capabilities: str, fabric: str = "tcp") -> Hardware:
    return Hardware(platform, Accelerator(platform), Fabric(fabric), capabilities=frozenset(capabilities))


def facts(of: Job, tmp_path: Path, *wanted: str, log: str = "", **seen: Any) -> dict[str, tuple[str, ...]]:
    output = tmp_path / "output.log"
    output.write_text(log)
    return cell_facts(of, evidence(**seen), output, wanted)


@pytest.mark.parametrize(
    ("platforms", "expected"),
    [
        (("cpu",), ("cpu",)),
        (("cuda", "cuda"), ("cuda",)),
        (("cuda", "cpu"), ("cuda", "cpu")),
        (("rocm", "cuda"), ("rocm", "cuda", "mixed")),
    ],
)
def test_platforms(tmp_path: Path, platforms: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert facts(cell(*map(gpu, platforms)), tmp_path)["platform"] == expected


@pytest.mark.parametrize(
    ("named", "platforms", "expected"),
    [
        ("guarded", ("cuda",), {"guarded"}),
        ("device", ("cuda", "rocm"), {"device", "cuda", "rocm"}),
        ("managed", ("rocm",), {"managed", "rocm"}),
        ("host to cuda-managed", ("cuda", "rocm"), {"host", "managed", "cuda"}),
        ("HOST (H)", ("cuda",), {"host"}),
        ("{memory}", ("cpu",), {"host"}),
        ("{memory}", ("rocm",), {"device", "rocm"}),
    ],
)
def test_memory(tmp_path: Path, named: str, platforms: tuple[str, ...], expected: set[str]) -> None:
    of = cell(*map(gpu, platforms), facts={"memory": named})
    assert set(facts(of, tmp_path, "memory")["memory"]) == expected


def test_a_log_decides_only_what_the_job_leaves_open(tmp_path: Path) -> None:
    log = "ucp_context.c UCX INFO rocm_copy, cuda_copy over cxi0"
    ours = facts(cell(gpu("cpu")), tmp_path, "memory", "platform", "fabric", log=log)
    assert [ours[name] for name in ("memory", "platform", "fabric")] == [("host",), ("cpu",), ("tcp",)]
    other = facts(cell(gpu("rocm"), external=OTHERS), tmp_path, "memory", log=log)
    assert other["memory"] == ("device", "cuda", "rocm")
    assert "memory" not in facts(cell(gpu("rocm"), external=OTHERS), tmp_path, "memory")


def test_fabrics_launcher_program_and_versions(tmp_path: Path) -> None:
    of = cell(gpu("cpu", fabric="roce"), gpu("cpu"), facts={"stack": "openmpi-5"})
    found = facts(of, tmp_path, versions={"ucx": "1.18.0, 1.20.1"})
    assert found["fabric"] == ("roce", "tcp")
    assert found["launcher"] == ("mpirun",)
    assert found["program"] == ()
    assert (found["stack"], found["ucx"]) == (("openmpi-5",), ("1.18.0", "1.20.1"))
    assert facts(cell(gpu("cpu"), backend="gloo"), tmp_path)["program"] == ("torch",)
    assert "program" not in facts(cell(gpu("cpu"), external=OTHERS), tmp_path)


def test_a_variable_is_known_where_the_job_sets_it(tmp_path: Path) -> None:
    argv = ("mpirun", "-np", "1", "env", "UCX_TLS=tcp", "a", ":", "-np", "1", "a")
    found = facts(cell(gpu("cpu"), gpu("cpu"), argv=argv), tmp_path, "UCX_TLS", "UCX_NET_DEVICES")
    assert found["UCX_TLS"] == ("tcp", "")
    assert "UCX_NET_DEVICES" not in found


@pytest.mark.parametrize(
    ("nodes", "capabilities", "expected"),
    [
        ((gpu("rocm"), gpu("rocm")), {"no-large-bar", "rocm-large-bar"}, ("no",)),
        ((gpu("rocm"), gpu("cuda")), {"rocm-large-bar"}, ("yes",)),
        ((gpu("rocm", "large-bar"), gpu("cuda")), {"large-bar"}, ("yes",)),
        ((gpu("rocm"), gpu("cuda", "large-bar")), {"large-bar"}, None),
        ((gpu("cuda"),), set(), None),
    ],
)
def test_large_bar(
    tmp_path: Path, nodes: tuple[Hardware, ...], capabilities: set[str], expected: tuple[str, ...] | None
) -> None:
    assert facts(cell(*nodes, capabilities=frozenset(capabilities)), tmp_path).get("large_bar") == expected
