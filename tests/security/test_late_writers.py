"""A process that outlived its launcher writes to no log that is published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.execution.execute import execute
from pytest_hetgpu.extensions.runtimes.fake import FakeRuntime
from pytest_hetgpu.model.outcome import RunResult
from pytest_hetgpu.store.folder import RunFolder
from tests.analysis.judges.judge_cases import job


class Survived(FakeRuntime):
    """Its command ends, and a process of it does not."""

    def run(self, *given: Any, **settings: Any) -> RunResult:
        return replace(super().run(*given, **settings), survivors=("python (7), which KILL did not end",))


def test_a_survivors_words_are_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path / "leases"))
    folder, made = RunFolder.create(tmp_path / "reports"), job()
    opened = []
    runtime = Survived(lambda _: (0, opened.append(folder.raw(made.label).open("ab")) or b"a line\n"))  # type: ignore[func-returns-value]
    execute(Cluster(made, tuple(ClusterNode(node, runtime) for node in made.nodes)), folder, None)
    for late in opened:
        with late:
            late.write(b"password=hunter2xyz\n")
    assert len(opened) == 1
    assert folder.log(made.label).read_bytes() == b"a line\n"
