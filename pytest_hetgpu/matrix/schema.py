"""The JSON Schema of a matrix file, from the models that validate it: for editors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter

from pytest_hetgpu.matrix.document import MAIN_AXES
from pytest_hetgpu.matrix.models import ExcludeShape, ExpectShape, HardwareShape, Options, PlacementShape
from pytest_hetgpu.matrix.values import entry_model
from pytest_hetgpu.registry import names

NAME = "^[A-Za-z0-9_.+-]+$"
_REFS = "#/$defs/{model}"


def matrix_schema() -> dict[str, Any]:
    """Draft 2020-12. Scalars that the models take as text may be written as YAML numbers and booleans too."""
    definitions: dict[str, Any] = {}
    shapes = {
        "hardware": _shape(HardwareShape, definitions),
        "placement": {"anyOf": [_list_of_names(), _shape(PlacementShape, definitions)]},
        "transport": _entries("transports", "family", definitions),
        "workload": _entries("workloads", "kind", definitions),
        "setting": _settings(definitions),
        "exclude": _exclude(definitions),
        "expect": _shape(ExpectShape, definitions),
    }
    axis = {name: _named({"$ref": f"#/$defs/{name}"}) for name in MAIN_AXES}
    further = {"anyOf": [_named({"$ref": "#/$defs/setting"}), {"type": "array", "minItems": 1}]}
    axes = {"type": "object", "properties": axis, "required": list(MAIN_AXES), "additionalProperties": further}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pytest-hetgpu matrix",
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": NAME},
            "hardware": _named({"$ref": "#/$defs/hardware"}),
            "transports": _named({"$ref": "#/$defs/transport"}),
            "axes": axes,
            "include": {"type": "array", "items": {"type": "object"}},
            "exclude": {"type": "array", "items": {"$ref": "#/$defs/exclude"}},
            "expect": {"type": "array", "items": {"$ref": "#/$defs/expect"}},
        },
        "patternProperties": {"^x-": True},
        "required": ["hardware", "axes"],
        "additionalProperties": False,
        "$defs": {**definitions, **shapes},
    }


def _named(entry: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "propertyNames": {"pattern": NAME}, "additionalProperties": entry, "minProperties": 1}


def _list_of_names() -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "pattern": NAME}, "minItems": 1}


def _shape(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    schema = TypeAdapter(model).json_schema(ref_template=_REFS)
    definitions.update(schema.pop("$defs", {}))
    return schema


def _entries(family: str, key: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """One alternative a family or kind. Its key may be left out where the entry's name says it, so names decide then."""
    found: list[dict[str, Any]] = []
    for name in names(family):
        shape = _shape(entry_model(family, name), definitions)
        shape["properties"] = {key: {"const": name}, **shape["properties"]}
        found.append(shape)
    return {"anyOf": [*found, {"type": "null"}]}


def _settings(definitions: dict[str, Any]) -> dict[str, Any]:
    """A further axis's value: options, and the settings of any family or kind."""
    shapes = [_shape(Options, definitions)]
    shapes += [_shape(entry_model(family, name), definitions) for family in ("transports", "workloads") for name in names(family)]
    properties = {key: value for shape in shapes for key, value in shape["properties"].items()}
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _exclude(definitions: dict[str, Any]) -> dict[str, Any]:
    """`where` may be left out, its axes standing beside `reason`."""
    shape = _shape(ExcludeShape, definitions)
    (pattern,) = shape["properties"]["where"]["patternProperties"].values()
    return {**shape, "required": ["reason"], "additionalProperties": pattern}
