"""Output of foreign programs, changed in any way: finite numbers of something, and complaints in clean words."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.output import OutputLines
from pytest_hetgpu.extensions.readers.base import ParseRequest
from pytest_hetgpu.extensions.registry import names
from tests.extensions.readers.test_output_parser import NUMBERS, PIECES, TEXTS, reader, sound
from tests.fuzz.fuzzing import bounded, cases, damaged, fuzz, harmless

SAMPLES = [text.encode() for text in TEXTS] + [b'{"results": [{"value": 1.5, "unit": "GB/s"}]}\n']
WORDS = [*(word.encode() for word in (*NUMBERS, *PIECES)), b"{", b"[", b'{"a":' * 200, b"[" * 3000, b"#", b"-" * 3000]

LABELS = {
    "open-mpi-4": b"[1,1]<stdout>:",
    "open-mpi-5": b"[prterun-host-1@1,0]<stderr>: ",
    "srun": b" 3: ",
    "torchrun": b"[default1]:",
}


def check(path: Path, data: bytes, name: str, labels: str = "") -> None:
    path.write_bytes(data)
    found = []
    for _ in range(2):
        taking = reader(name, ParseRequest(("prog", "-s", "8"), name, (), 2, "allreduce"))
        for line in OutputLines(path, labels=labels).lines():
            taking.read(line)
        found.append(taking.finish())
    assert found[0].rows == found[1].rows
    sound(found[0])
    for said in (*found[0].warnings, *found[0].failed, found[0].tool, found[0].version):
        harmless(said)
    for row in found[0].rows:
        harmless(f"{row.operation}{row.point}")
        for metric, figure in row.figures.items():
            harmless(f"{metric}{figure.unit}")


@pytest.mark.parametrize("name", names("readers"))
def test_output(tmp_path: Path, name: str) -> None:
    fuzz(damaged(SAMPLES, WORDS), lambda data: check(tmp_path / "output.log", data, name), examples=60)


@pytest.mark.parametrize("labels", LABELS)
def test_labelled_output(tmp_path: Path, labels: str) -> None:
    fuzz(
        damaged(SAMPLES, [*WORDS, *LABELS.values()]),
        lambda data: check(tmp_path / "output.log", data, "command", labels),
        examples=60,
    )


@pytest.mark.parametrize("case", cases("readers"), ids=lambda path: path.name)
def test_what_was_found(tmp_path: Path, case: Path) -> None:
    with bounded():
        check(tmp_path / "output.log", case.read_bytes(), case.name.partition("-")[0])
