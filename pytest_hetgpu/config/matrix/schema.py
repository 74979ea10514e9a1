"""The JSON Schema of a matrix file for editors, made from the models that validate it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import DictSchema

from pytest_hetgpu.config.matrix.hardware import whole_shape
from pytest_hetgpu.config.matrix.matrix import MAIN_AXES
from pytest_hetgpu.config.matrix.models import ExcludeShape, ExpectShape, Options, PlacementShape, ReferenceRuleShape
from pytest_hetgpu.config.matrix.scaling import SeriesShape
from pytest_hetgpu.config.matrix.values import entry_model
from pytest_hetgpu.extensions.registry import names
from pytest_hetgpu.extensions.shapes import NAME

Json = dict[str, Any]

_NAME: Json = {"type": "string", "pattern": NAME.pattern}
_NULL: Json = {"type": "null"}


def matrix_schema() -> Json:
    """Return the schema (draft 2020-12). A scalar that is text in the models may be a YAML number or boolean."""
    shapes = _Shapes()
    transports, workloads = shapes.described("transports", "family"), shapes.described("workloads", "kind")
    axes = {"placement": _named(shapes.placement()), "transport": transports, "workload": workloads}
    listed = {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1}
    further = {"anyOf": [_named(shapes.define("setting", shapes.setting())), listed]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pytest-hetgpu matrix",
        "type": "object",
        "properties": {
            "name": _NAME,
            "hardware": _named({"anyOf": [shapes.of(whole_shape()), _NULL]}),
            "transports": transports,
            "axes": {**_named(further, axes), "required": list(MAIN_AXES)},
            "include": {"type": "array", "items": shapes.include()},
            "exclude": {"type": "array", "items": shapes.exclude()},
            "expect": {"type": "array", "items": shapes.of(ExpectShape)},
            "reference": {"type": "array", "items": shapes.of(ReferenceRuleShape)},
            "scaling": shapes.series(),
        },
        "patternProperties": {"^x-": True},
        "required": ["hardware", "axes"],
        "additionalProperties": False,
        "$defs": shapes.definitions,
    }


def _map(**keywords: Any) -> Json:
    return {"type": "object", **keywords}


def _named(entry: Json, known: Json | None = None) -> Json:
    rest = _map(propertyNames={"pattern": NAME.pattern}, additionalProperties=entry, minProperties=1)
    return {**rest, "properties": known} if known else rest


class _Closed(GenerateJsonSchema):
    """A generator that closes maps whose keys have a pattern."""

    def dict_schema(self, schema: DictSchema) -> Json:
        found = super().dict_schema(schema)
        return {**found, "additionalProperties": False} if "patternProperties" in found else found


class _Shapes:
    """The schemas of the models; `definitions` collects them by name."""

    def __init__(self) -> None:
        self.definitions: dict[str, Json] = {}

    def of(self, model: type[BaseModel]) -> Json:
        """Return a reference to the schema of one model."""
        return self.define(model.__name__, self.whole(model))

    def define(self, name: str, schema: Json) -> Json:
        """Add a definition, and return a reference to it."""
        self.definitions[name] = schema
        return {"$ref": f"#/$defs/{name}"}

    def whole(self, model: type[BaseModel]) -> Json:
        """Return the schema of one model, with references to the models in it."""
        schema = TypeAdapter(model).json_schema(ref_template="#/$defs/{model}", schema_generator=_Closed)
        self.definitions.update(schema.pop("$defs", {}))
        return schema

    def placement(self) -> Json:
        return {"anyOf": [{"type": "array", "items": _NAME, "minItems": 1}, self.of(PlacementShape)]}

    def entries(self, family: str, key: str) -> dict[str, Json]:
        """Return the entry of each extension; its key names the extension."""
        shapes = {name: self.whole(entry_model(family, name)) for name in names(family)}
        return {name: _with(shape, key, {"const": name}) for name, shape in shapes.items()}

    def described(self, family: str, key: str) -> Json:
        """Return the schema of a map of entries. An entry that has the name of its extension may omit the key."""
        entries = {name: self.define(f"{family}.{name}", entry) for name, entry in self.entries(family, key).items()}
        stated = [{**entry, "required": [key]} for entry in entries.values()]
        return _named({"anyOf": stated}, {name: {"anyOf": [entry, *stated, _NULL]} for name, entry in entries.items()})

    def setting(self) -> Json:
        """Return the schema of a value of a further axis: options, and the settings of any extension."""
        variants = [(family, name) for family in ("transports", "workloads") for name in names(family)]
        models: list[type[BaseModel]] = [Options, *(entry_model(*variant) for variant in variants)]
        shapes: dict[str, list[Json]] = {}
        for key, value in (pair for model in models for pair in self.whole(model)["properties"].items()):
            if value not in shapes.setdefault(key, []):
                shapes[key].append(value)
        # Several extensions may have a setting of one name.
        properties = {key: found[0] if len(found) == 1 else {"anyOf": found} for key, found in shapes.items()}
        properties.pop("over", None)
        return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}

    def include(self) -> Json:
        """Return the schema of an include: per axis a name, a list, or a definition."""
        inline = {
            "placement": [self.whole(PlacementShape)],
            "transport": list(self.entries("transports", "family").values()),
            "workload": list(self.entries("workloads", "kind").values()),
        }
        axes = {axis: self.included(axis, entries) for axis, entries in inline.items()}
        further = self.included("setting", [self.setting()])
        return _map(properties=axes, required=list(MAIN_AXES), additionalProperties=further)

    def series(self) -> Json:
        """Return the schema of `scaling`: a series or a list of them, each with the values of an include."""
        shape, include = self.whole(SeriesShape), self.include()
        others = {axis: value for axis, value in include["properties"].items() if axis != "placement"}
        required = [*shape["required"], *others]
        one = self.define("series", {**include, "properties": {**others, **shape["properties"]}, "required": required})
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}

    def included(self, axis: str, entries: list[Json]) -> Json:
        """Return the schema of the values of an include on one axis."""
        named = [_with(entry, "name", _NAME) for entry in entries]
        for entry in named:
            entry["required"] = [*entry.get("required", []), "name"]
        one = self.define(f"included.{axis}", {"anyOf": [{"type": ["string", "number"]}, *named]})
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}

    def exclude(self) -> Json:
        """Return the schema of an exclude; without `where`, its axes are beside `reason`."""
        shape = self.whole(ExcludeShape)
        (pattern,) = shape["properties"]["where"]["patternProperties"].values()
        beside = {key: value for key, value in shape["properties"].items() if key != "where"}
        flat = _map(properties=beside, required=["reason"], additionalProperties=pattern, minProperties=2)
        return {"anyOf": [shape, {**flat, "not": {"required": ["where"]}}]}


def _with(shape: Json, key: str, value: Json) -> Json:
    return {**shape, "properties": {key: value, **shape["properties"]}}
