"""The table of faults in docs/reference/reliability.md has a row for each test of a fault, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def faults() -> set[str]:
    """The first lines of the docstrings of the tests."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests" / "faults").glob("test_*.py")]
    tests = [
        node
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return {(ast.get_docstring(test) or test.name).splitlines()[0].removesuffix(".") for test in tests}


def test_every_fault_has_its_row() -> None:
    page = (ROOT / "docs" / "reference" / "reliability.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"<!-- benchmarks/faults.py -->(.*?)<!-- end of benchmarks/faults.py -->", page, re.DOTALL)
    rows = {line.partition(" | ")[0] for line in text.splitlines() if " | " in line}
    assert rows - {"Fault"} == faults()
