"""What verdicts rest on: files by what they hold, stacks, options, variables that ranks inherit."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu import __version__
from pytest_hetgpu.config.inventory.file import read as read_inventory
from pytest_hetgpu.execution.resume import fingerprint
from pytest_hetgpu.execution.resume.rules import RULES, ResumeRule
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs
from pytest_hetgpu.session.settings import OPTIONS, Option

MATRIX = """\
name: demo
hardware:
  cpu: {}
  boxed: {runtime: docker, image: image}
axes:
  placement: {two: [cpu, cpu], box: [boxed]}
  transport: {ob1: {}}
  workload: {send_recv: {}}
  mpi: {four: {stack: openmpi-4}, five: {}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("demo.yaml").write_text(MATRIX)
    Path("hosts.yaml").write_text("hardware: {cpu: [localhost]}\n")
    Path("known.yaml").write_text("[]\n")
    Path("rules.yaml").write_text("rules: {}\n")
    Path("image").mkdir()
    Path("image/Dockerfile").write_text("FROM scratch\n")
    return tmp_path


def resting(**environ: str) -> dict[str, str]:
    inputs = RunInputs(Path("hosts.yaml"), (Path("known.yaml"),), (Path("rules.yaml"),))
    environ = {"HETGPU_STACKS": "none", "XDG_CACHE_HOME": "none", **environ}
    suite = MatrixSet.load([Path("demo.yaml")], Path.cwd(), timeout=1, environ=environ, inputs=inputs)
    return dict(fingerprint.compute(suite, ["demo.yaml", "image"], {"--hetgpu-timeout": "120"}, environ))


@pytest.mark.usefixtures("here")
def test_everything_that_counts_is_in_it() -> None:
    found = resting(UCX_TLS="tcp", OMPI_MCA_pml="ob1", HOME="/root", HF_TOKEN="s3cr3t", UCX_SECRET_TOKEN="s3cr3t")
    assert found["pytest-hetgpu"] == __version__
    assert {name for name in found if "variable" not in name and name != "pytest-hetgpu"} == {
        "matrix demo",
        "inventory",
        "known failures known.yaml",
        "signatures rules.yaml",
        "tests demo.yaml",
        "tests image",
        "image of demo.boxed",
        "stack openmpi-5",
        "stack openmpi-4",
        "--hetgpu-timeout",
    }
    assert found["stack openmpi-5"] == "not here"
    assert found["image of demo.boxed"].startswith("hetgpu/image:")
    assert {name for name in found if "variable" in name} == {
        "variable UCX_TLS",
        "variable OMPI_MCA_pml",
        "variable UCX_SECRET_TOKEN",
    }
    assert "s3cr3t" not in str(found)


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("demo.yaml", MATRIX + "# a word\n", "matrix demo"),
        ("hosts.yaml", "hardware: {cpu: [127.0.0.1]}\n", "inventory"),
        ("known.yaml", "[ ]\n", "known failures known.yaml"),
        ("rules.yaml", "rules: {} # none\n", "signatures rules.yaml"),
        ("image/Dockerfile", "FROM debian\n", "image of demo.boxed"),
    ],
)
def test_another_content_is_a_difference(here: Path, file: str, text: str, name: str) -> None:
    before = resting()
    (here / file).write_text(text)
    lines = list(fingerprint.differences(before, resting()))
    assert [line.partition(": was ")[0] for line in lines if not line.startswith("tests ")] == [name]
    assert all(len(line) < 100 for line in lines)


@pytest.mark.usefixtures("here")
def test_what_came_and_went_is_named() -> None:
    assert list(fingerprint.differences(resting(UCX_TLS="tcp"), resting(NCCL_DEBUG="INFO"))) == [
        "variable UCX_TLS: was tcp, is not there",
        "variable NCCL_DEBUG: was not there, is INFO",
    ]


def test_there_is_a_rule_for_every_option() -> None:
    assert {option.name for option in OPTIONS} == set(RULES)


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.same], ids=lambda option: option.name)
def test_what_a_cell_needs_to_be_the_same_is_not_free(option: Option) -> None:
    assert RULES[option.name] is not ResumeRule.FREE


def test_runs_of_the_version_before_can_be_resumed(tmp_path: Path) -> None:
    """The digest was printed by the version that kept the settings of each runtime in a field of its own."""
    path = tmp_path / "hosts.yaml"
    path.write_text("hardware: {gpu: [a, b]}\n")
    digest = "646a1a1ebf52dd0f21d5260788a488d03f6ccae124f23e00ec8f03306cd3d83c"
    assert fingerprint._hosts(read_inventory(path)) == f"sha256 {digest}"
