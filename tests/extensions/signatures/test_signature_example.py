"""The log parser that docs/how-to/adding-a-dialect.md shows reads what it is made for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.signatures.base import LogParser

EXAMPLE = Path(__file__).parents[3] / "examples" / "frobd.py"


def test_the_example_of_the_documents_finds_its_failure() -> None:
    spec = importlib.util.spec_from_file_location("frobd", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    parser: LogParser = module.Frobd()
    for number, line in enumerate(("frobd: no hardware", "frobd: lost n7: cable"), 1):
        parser.feed(parse_line(line, number))
    (found,) = parser.finish()
    assert (found.signature.key, found.signature.hosts, found.signature.detail) == ("lost@frobd", ("n7",), "cable")
