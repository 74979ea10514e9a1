"""The schema that editors get says what the reader says, as far as a schema can."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.config.matrix.schema import matrix_schema
from pytest_hetgpu.config.matrix.source import Mapping, Node, Scalar
from pytest_hetgpu.planning.expand import expand
from tests.config.matrix.test_matrix_errors import BASE, CASES, changed
from tests.config.matrix.test_matrix_fuzz import BASES, FOLDER
from tests.config.matrix.test_matrix_reader import RULES

Reads = Callable[..., Matrix]


def as_editors_read(node: Node) -> Any:
    """A tree with the types of YAML 1.2's core schema."""
    if isinstance(node, Mapping):
        return {key: as_editors_read(child) for key, child in node.entries.items()}
    if not isinstance(node, Scalar):
        return [as_editors_read(item) for item in node.items]
    if node.text is None or not node.plain:
        return node.text
    return core_scalar(node.text)


def core_scalar(text: str) -> str | bool | int | float:
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return int(text)
    number = re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", text)
    return float(text) if number else text


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema.Draft202012Validator(matrix_schema())


def errors(validator: Any, text: str) -> list[str]:
    return [
        f"{error.json_path}: {error.message}" for error in validator.iter_errors(as_editors_read(source.parse(text)))
    ]


def test_it_is_a_schema_and_says_which_draft() -> None:
    schema = matrix_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


def test_every_reference_in_it_leads_somewhere() -> None:
    schema = matrix_schema()
    references = set(re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(schema)))
    assert references
    assert references <= schema["$defs"].keys()


@pytest.mark.parametrize("name", BASES)
def test_a_shipped_matrix_is_good_to_the_schema_and_to_the_reader(validator: Any, reads: Reads, name: str) -> None:
    assert errors(validator, BASES[name]) == []
    assert expand(reads(BASES[name], HOME="/"))


def test_a_matrix_of_everything_is_good(validator: Any) -> None:
    assert errors(validator, RULES) == []
    assert errors(validator, BASE + "  ranks_per_node: [1, 2]\nexclude: [{ranks_per_node: 2, reason: 6.10}]\n") == []


@pytest.mark.parametrize(
    "case", [name for name, case in CASES.items() if any("unknown key" in told for told in case["told"])]
)
def test_a_misspelt_key_is_an_error_to_the_schema_too(validator: Any, case: str) -> None:
    assert errors(validator, changed(CASES[case]["old"], CASES[case]["new"]))


# What needs more than a schema: names of other parts of the file, words with a meaning, cells.
BEYOND = re.compile(
    r"unknown (hardware|platform|runtime|stack|launcher|outcome|failure|dtype|axis|fact|transport)"
    r"|matches no|defined|disagree"
    r"|one id|cells?\b|listed twice|lists|is not a|run|whole number of|size '|sets |needs a name|names no|version range"
    r"|capability"
    r"|has no size|min_size|fabric speed|no bandwidth|no metric|measures nothing|which does not tell|excluded"
    r"|the class of|include\.|each entry of include|environment|not YAML|no setting|NUL|not one name"
)


# A list of one setting is checked by what the setting is.
BEYOND_TOO = ("listed bad", "listed name", "listed map setting", "reserved")


@pytest.mark.parametrize("case", CASES)
def test_what_the_schema_lets_pass_needs_more_than_a_schema(validator: Any, case: str) -> None:
    old, new, told = (CASES[case][key] for key in ("old", "new", "told"))
    try:
        found = errors(validator, new if old == "all of it" else changed(old, new))
    except source.SourceError:
        return
    assert found or case.endswith(BEYOND_TOO) or any(BEYOND.search(error) for error in told)


def test_the_matrices_are_those_of_the_repository() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml") if not path.name.endswith(".hosts.yaml")} <= BASES.keys()
    assert "smoke.yaml" in BASES
