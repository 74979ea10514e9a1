"""Facts that texts in a log prove."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.log_facts import TEXTS, log_facts, separate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ucp_worker.c UCX INFO intra-node cfg#1 tag(tcp/eth0 rocm_copy/rocm)", {"memory": ("device", "rocm")}),
        ("tensor([1.], device='cuda:1')", {"memory": ("device",)}),
        ("ranks on host buffers", {}),
    ],
)
def test_gpu_memory(tmp_path: Path, text: str, expected: dict[str, tuple[str, ...]]) -> None:
    log = tmp_path / "a.log"
    log.write_text(text)
    assert log_facts(log, ["memory", "stack"]) == expected


def test_components_of_both_vendors_make_a_mixed_job(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("libuct_cuda.so\nlibuct_rocm.so\n")
    assert log_facts(log, ["platform"]) == {"platform": ("cuda", "rocm", "mixed")}


def test_what_nobody_asks_for_is_not_searched_for(tmp_path: Path) -> None:
    assert log_facts(tmp_path, ()) == log_facts(tmp_path, ("ucx",)) == {}
    assert log_facts(tmp_path / "none", TEXTS) == {}


def test_versions_that_differ_are_several_values() -> None:
    assert separate({"ucx": "1.18.0, 1.20.1", "nccl": "2.20"}) == {"ucx": ("1.18.0", "1.20.1"), "nccl": ("2.20",)}
