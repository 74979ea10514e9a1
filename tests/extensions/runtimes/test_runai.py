"""RunAI's command line, as shells take it apart: the one that it is typed into, and the one in a pod."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.extensions.runtimes._kubernetes.runai import batch, submission
from pytest_hetgpu.extensions.runtimes.pods.request import Pods

TEAM = Pods(
    kind="pytorchjob",
    image="registry.rcp.epfl.ch/meditron-ddx/basic:latest-solergib",
    scheduler="runai-scheduler",
    annotations={"k8s.v1.cni.cncf.io/networks": "kube-system/roce"},
    resources={"rdma/rdma": "1"},
)
# What a person types for a placement of four, by the document on RoCE: https://docs.run.ai/v2.13
DOCUMENTED = """runai submit-dist pytorch \
  --name my_first_distributed_app \
  --image registry.rcp.epfl.ch/meditron-ddx/basic:latest-solergib \
  --workers 3 \
  --gpu 0 \
  --annotation k8s.v1.cni.cncf.io/networks=kube-system/roce \
  --extended-resource rdma/rdma=1 \
  -- "sleep infinity"
"""


def reaches(line: str, tmp_path: Path, **variables: str) -> list[str]:
    """What a program in a pod is started with: RunAI joins the words behind `--`, and a shell there reads them."""
    script = f'runai() {{ while [ "$1" != -- ]; do shift; done; shift; printf "%s" "$*"; }}\n{line}\n'
    typed = subprocess.run(["sh", "-eu", "-c", script], capture_output=True, check=True, cwd=tmp_path)
    assert typed.stderr == b""
    for name in ("sleep", "python3", "program"):
        shown = tmp_path / "bin" / name
        shown.parent.mkdir(exist_ok=True)
        shown.write_text(f'#!/bin/sh\nprintf "%s\\0" {name} "$@" "N=$HETGPU_NODE"\n')
        shown.chmod(0o700)
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HETGPU_NODE": "", **variables}
    found = subprocess.run(["sh", "-c", typed.stdout], env=env, capture_output=True, check=True, cwd=tmp_path)
    return found.stdout.decode().split("\0")[:-1]


def test_it_is_the_command_of_the_document(tmp_path: Path) -> None:
    line = submission([TEAM] * 4, "my_first_distributed_app", ("sleep", "infinity"))
    before, after = line.split(" -- ")
    assert shlex.split(before) == shlex.split(DOCUMENTED.partition(" -- ")[0])
    assert after == "sleep infinity"
    assert reaches(line, tmp_path) == reaches(DOCUMENTED, tmp_path) == ["sleep", "infinity", "N="]


def test_a_project_gpus_volumes_and_variables_are_said() -> None:
    pods = replace(
        TEAM,
        scheduler="",
        project="team",
        resources={"nvidia.com/gpu": "8", "cpu": "16", "memory": "64Gi", "rdma/rdma": "0"},
        claims={"scratch": "/scratch"},
        shm=1 << 30,
    )
    words = shlex.split(submission([pods], "n", ("true",), [("A", "b c"), ("D", "$E")]))
    assert words[words.index("--project") + 1] == "team"
    assert words[words.index("--workers") + 1] == "0"
    assert words[words.index("--gpu") + 1] == "8"
    assert words[words.index("--cpu") + 1] == "16"
    assert words[words.index("--memory") + 1] == "64Gi"
    assert words[words.index("--pvc") + 1] == "scratch:/scratch"
    assert [words[at + 1] for at, word in enumerate(words) if word == "-e"] == ["A=b c", "D=$E"]
    assert "--large-shm" in words
    assert "--extended-resource" not in words


@pytest.mark.parametrize("pods", [[], [Pods()], [TEAM, replace(TEAM, image="other:1")]])
def test_what_is_not_runais_or_not_alike_has_no_such_command(pods: Sequence[Pods]) -> None:
    assert submission(pods, "n", ("true",)) == ""


# RunAI's client hands over C strings, and what is typed is a line.
WORDS = st.text(st.characters(blacklist_characters="\0\n\r", blacklist_categories=["Cs"]), max_size=20)


@given(st.lists(WORDS, min_size=1, max_size=3))
def test_the_words_are_the_same_behind_both_shells(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    line = submission([TEAM], "n", ("program", *words))
    assert reaches(line, tmp_path_factory.mktemp("pod"))[:-1] == ["program", *words]


TORCHRUN = (
    *("python3", "/tmp/hetgpu/programs/torchruns.py", "--ssh-config", "c", "-np", "8", "-H", "localhost"),
    *("env", "A=b c", "HETGPU_NODE=0", "python3", "-m", "torch.distributed.run", "--nnodes", "2"),
    *("--nproc-per-node", "8", "--node-rank", "0", "--rdzv-id", "7", "--rdzv-endpoint", "node0:7"),
    *("--rdzv-conf", "is_host=true", "--local-addr", "node0", "/tmp/hetgpu/programs/x.py", "--a", "it's $b"),
    *(":", "-np", "8", "-H", "node1", "python3", "other"),
)


def test_torchrun_is_a_job_of_runais_own_with_the_variables_that_it_sets(tmp_path: Path) -> None:
    (tmp_path / "hetgpu").mkdir()
    pods = replace(TEAM, claims={"scratch": str(tmp_path)})
    line, programs = batch([pods, pods], "n", TORCHRUN, "/tmp/hetgpu/programs")
    assert programs == f"{tmp_path}/hetgpu/programs"
    assert "-- bash -o pipefail -c '\"HETGPU_NODE=\\$RANK python3" in line
    assert "-e 'A=b c'" in line
    told = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "10.0.0.5", "MASTER_PORT": "23456"}
    assert reaches(line, tmp_path, **told) == [
        *("python3", "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "8", "--node-rank", "1"),
        *("--rdzv-endpoint", "10.0.0.5:23456", f"{programs}/x.py", "--a", "it's $b", "N=1"),
    ]
    # The output stays on the volume.
    assert "torch.distributed.run" in (tmp_path / "hetgpu" / "n-1.log").read_text()


def test_torchrun_without_variables_is_such_a_job_too(tmp_path: Path) -> None:
    (tmp_path / "hetgpu").mkdir()
    pods = replace(TEAM, claims={"scratch": str(tmp_path)})
    line, programs = batch(
        [pods], "n", ("python3", "/p/torchruns.py", "-np", "1", "-H", "h", "python3", "/p/x.py"), "/p"
    )
    assert reaches(line, tmp_path, RANK="0") == ["python3", f"{programs}/x.py", "N=0"]


@pytest.mark.parametrize(
    ("pods", "argv"),
    [
        ([TEAM], TORCHRUN),
        ([], TORCHRUN),
        ([replace(TEAM, claims={"s": "/s"})], ("mpirun", "-H", "a")),
        ([replace(TEAM, claims={"s": "/s"})], ("true",)),
    ],
)
def test_others_are_no_job_of_runais_own(pods: list[Pods], argv: tuple[str, ...]) -> None:
    assert batch(pods, "n", argv, "/p") == ("", "")
