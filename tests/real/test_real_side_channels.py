"""Side channels of whole runs: no value of a variable in a command line, no credential of CI in a rank."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.command_lines import watched
from tests.real.nodes_here import RAW, ROOT

pytestmark = [pytest.mark.real, pytest.mark.beside]

Stacks = Callable[[str], Path]
Nodes = Callable[..., pytest.RunResult]

TOKEN, PLAIN = "s3cr3tvalueABC9", "quiet-word-81"
HARDWARE = f"env: {{API_TOKEN: '${{MY_API_TOKEN}}', PLAIN: {PLAIN}}}"
OTHER = f"env: {{API_TOKEN: '${{MY_API_TOKEN}}2', PLAIN: {PLAIN}2}}"
AXES = """\
axes:
  placement: {same: [one, one], mixed: [one, other]}
  transport: {%s: {}}
  workload: {own: {kind: command, mpi: false, argv: [/bin/sh, -c, "env; sleep 0.5; echo GOOD"], success: GOOD}}
  start: {by: {launcher: %s}}
"""
IMAGE = f"{ROOT}/containers/cpu-ompi5"
OF_CI = ("GITHUB_TOKEN", "CI_JOB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "SSH_AUTH_SOCK", "VAULT_TOKEN")


@pytest.fixture
def ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_CI:
        monkeypatch.setenv(name, "/ci-value-55")
    monkeypatch.setenv("HETGPU_HISTORY", "ci-value-55.db")
    monkeypatch.setenv("MY_API_TOKEN", TOKEN)


def check(pytester: pytest.Pytester, seen: set[str]) -> None:
    """Ranks got the values, each its own; nobody else saw them, and nobody got those of CI."""
    text = "".join(log.read_text() for log in pytester.path.glob(RAW))
    told = re.findall(rf"API_TOKEN=({TOKEN}2?)\b", text), re.findall(rf"PLAIN=({PLAIN}2?)\b", text)
    assert [sorted(values) for values in told] == [[TOKEN] * 3 + [f"{TOKEN}2"], [PLAIN] * 3 + [f"{PLAIN}2"]]
    assert "ci-value-55" not in text
    assert seen == set()


@pytest.mark.parametrize(
    ("stack", "launcher", "transport"),
    [
        ("openmpi-5", "mpirun", "auto"),
        ("openmpi-4", "mpirun", "auto"),
        ("mpich", "mpirun", "auto"),
        ("openmpi-5-torch", "torchrun", "gloo"),
    ],
)
def test_ranks_of_this_machine(
    pytester: pytest.Pytester,
    stacks_here: Stacks,
    ci: None,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    stack: str,
    launcher: str,
    transport: str,
) -> None:
    home = tmp_path_factory.mktemp("stacks")
    (home / stack).symlink_to(stacks_here(stack))
    monkeypatch.setenv("HETGPU_STACKS", str(home))
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path_factory.mktemp("leases")))
    head = "name: m\nhardware:\n" + "".join(
        f"  {name}: {{mpi: {{stack: {stack}}}, {env}}}\n" for name, env in (("one", HARDWARE), ("other", OTHER))
    )
    pytester.path.joinpath("m.yaml").write_text(head + AXES % (transport, launcher))
    with watched(TOKEN, PLAIN) as seen:
        result = pytester.runpytest_subprocess("--hetgpu-matrix", "m.yaml", timeout=300)
    assert result.ret == 0
    check(pytester, seen)


def test_ranks_in_containers(nodes: Nodes, pytester: pytest.Pytester, ci: None) -> None:
    head = "name: m\nhardware:\n" + "".join(
        f"  {name}: {{runtime: docker, image: {IMAGE}, {env}}}\n" for name, env in (("one", HARDWARE), ("other", OTHER))
    )
    with watched(TOKEN, PLAIN) as seen:
        result = nodes(AXES % ("auto", "mpirun"), head=head)
    assert result.ret == 0
    check(pytester, seen)
