"""The YAML in the documents loads as what it is: a matrix or a part, an inventory, known failures, steps of CI."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_hetgpu.config.inventory.file import read as read_inventory
from pytest_hetgpu.config.known_failures import file as known_failures_file
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.config.matrix.reader import read as read_matrix
from pytest_hetgpu.config.signature_rules import file as signature_file
from pytest_hetgpu.extensions.output_patterns import CommandSettings
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.expand import expand
from tests.document_blocks import ROOT, blocks

RULES = {"exclude", "include", "expect", "reference", "scaling"}
INVENTORY = {"hardware", "stacks", "build", "from", "slurm", "kubernetes"}
READER = set(CommandSettings.model_fields)
# What an inventory's `from` names, beside it.
SOURCES = {"hosts": "gpu1\n", "out.json": "{}", "nodes.json": '{"nodes": []}'}
# Variants of a package that a document shows, which a test of its own installs.
OTHERS = {"runtime: boxes, boxes: {lid: open}": "runtime: ssh", "launcher: plain": "launcher: mpirun"}
AXES: dict[str, Any] = {
    "placement": {"mixed": ["here", "here"], "rocm-only": ["here", "here"]},
    "transport": {name: {"family": "auto"} for name in ("ucx-tcp", "ucc", "nccl")},
    "workload": {"send_recv": {}, "allreduce": {}, "ddp_train": {}},
}


EXAMPLES = {block.place: block.text for block in blocks() if block.language == "yaml"}
# A tutorial writes its matrix step by step: the parts are one example.
STEPS = [place for place in EXAMPLES if place.startswith("docs/tutorials/")]
EXAMPLES |= {STEPS[0]: "".join(EXAMPLES.pop(place) for place in STEPS)}


def whole(text: str) -> tuple[str, str]:
    """What kind of file an example is of, and the file: what it shows a part of is written around it."""
    if text.startswith("- ") or "\nrules:\n" in text:
        entries = "workflow" if text.startswith("- uses: ") else "knowledge"
        return entries if text.startswith("- ") else "signatures", text
    keys = set(re.findall(r"^([a-z_]+):", text, re.MULTILINE))
    if "axes" in keys:
        return "matrix", text
    if keys <= INVENTORY:
        return "inventory", text
    if keys <= READER:
        return "reader", text
    hardware = {"here": {"platform": "cpu", "fabric": {"gbps": 10}}, "mi250x": {"platform": "rocm"}}
    frame = {"name": "frame", "hardware": hardware}
    if keys <= RULES:
        return "matrix", f"{yaml.safe_dump({**frame, 'axes': AXES})}{text}"
    missing = {name: values for name, values in AXES.items() if name not in keys}
    axes = textwrap.indent(f"{yaml.safe_dump(missing)}{text}", "  ")
    return "matrix", f"{yaml.safe_dump(frame)}axes:\n{axes}"


def test_every_outcome_of_a_log_is_explained() -> None:
    (row,) = re.findall(
        r"^`outcome` \|.*$", (ROOT / "docs" / "reference" / "explain.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {kind.value for kind in Kind} - set(re.findall(r"`(\w+)`", row)) == {"skipped"}


def test_the_documents_have_examples_of_all_kinds() -> None:
    kinds = {whole(text)[0] for text in EXAMPLES.values()}
    assert kinds == {"matrix", "inventory", "knowledge", "reader", "signatures", "workflow"}
    assert {name.partition(":")[0] for name in EXAMPLES} >= {
        "README.md",
        "docs/how-to/known-failures.md",
        "docs/reference/matrix.md",
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_loads(name: str, tmp_path: Path) -> None:
    kind, text = whole(EXAMPLES[name])
    for source, lines in SOURCES.items():
        (tmp_path / source).write_text(lines, encoding="utf-8")
    for theirs, ours in OTHERS.items():
        text = text.replace(theirs, ours)
    path = tmp_path / f"{kind}.yaml"
    path.write_text(text, encoding="utf-8")
    if kind == "knowledge":
        assert known_failures_file.read(path)
    elif kind == "signatures":
        assert signature_file.read(path)
    elif kind == "inventory":
        found = read_inventory(path)
        assert found.hardware or found.sites
    elif kind == "workflow":
        inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
        own = [step for step in yaml.safe_load(text) if "pytest-hetgpu@" in step["uses"]]
        assert own
        assert [key for step in own for key in step["with"] if key not in inputs] == []
    elif kind == "reader":
        assert CommandSettings.model_validate(yaml.safe_load(text)).patterns
    else:
        assert expand(read_matrix(path, {}, known_failures))
