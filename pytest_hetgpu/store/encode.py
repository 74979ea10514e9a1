"""Converts our frozen dataclasses to plain JSON and back, by their fields and type hints.

A reader is lenient across versions: it ignores unknown fields, and gives missing ones their default. It is strict about
wrong data: `RecordError` names the path. Numbers that JSON lacks are the strings `NaN`, `Infinity` and `-Infinity`. A
mapping whose keys are neither text, enums nor integers is a list of pairs. A field may have several keys
(`Hardware.settings`): only an extension has the class of its object, which is read as `Stored`.
"""

from __future__ import annotations

import enum
import math
import typing
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.model.stored import STORED, Stored
from pytest_hetgpu.store.decode import (
    Converter,
    DecodeError,
    decoder,
    is_a,
    is_named_tuple,
    json_key,
    key_decoder,
    optional,
)

T = TypeVar("T")


class RecordError(HetgpuError):
    """Stored data of the wrong shape."""


def to_json(obj: object) -> dict[str, Any]:
    """Convert a dataclass to a dict of JSON types only. Raises TypeError for a field type that has no JSON form."""
    cls: Any = type(obj)
    converted: dict[str, Any] = _encoder(cls)(obj)
    return converted


def from_json(cls: type[T], data: object) -> T:
    """Convert data that `to_json` wrote back to a `cls`.

    Raises RecordError naming the path: `Outcome.measurements[3].value: wanted a number, found 'x'`.
    """
    hint: Any = cls
    try:
        made: T = decoder(hint)(data)
    except DecodeError as error:
        raise RecordError(f"{cls.__name__}{error}") from None
    return made


@cache
def _encoder(hint: Any) -> Converter:
    """Return the function that converts a value of this type to JSON types; `_unchanged` if it is one already."""
    if hint in (str, int, bool, type(None)):
        return _unchanged
    if hint is float:
        return _encode_float
    if is_a(hint, enum.Enum):
        return attrgetter("value")
    if is_dataclass(hint):
        return _dataclass_encoder(hint)
    inner = optional(hint)
    if inner is not None:
        encode = _encoder(inner)
        return encode if encode is _unchanged else lambda value: None if value is None else encode(value)
    return _container_encoder(hint)


def _container_encoder(hint: Any) -> Converter:
    named = tuple(typing.get_type_hints(hint).values()) if is_named_tuple(hint) else ()
    origin, arguments = (tuple, named) if named else (typing.get_origin(hint), typing.get_args(hint))
    if is_a(origin, Mapping):
        return _mapping_encoder(_encoder(arguments[0]), _encoder(arguments[1]), key_decoder(arguments[0]) is not None)
    if is_a(origin, AbstractSet):
        encode = _encoder(arguments[0])
        return lambda value: sorted(map(encode, value))
    if origin is tuple and arguments[-1:] != (...,):
        parts = tuple(map(_encoder, arguments))
        return lambda value: [encode(item) for encode, item in zip(parts, value, strict=True)]
    if is_a(origin, Sequence):
        encode = _encoder(arguments[0])
        return list if encode is _unchanged else lambda value: [encode(item) for item in value]
    raise TypeError(f"no JSON form for {hint}")


def _dataclass_encoder(cls: Any) -> Converter:
    hints = typing.get_type_hints(cls)
    named = ((field, json_key(field)) for field in fields(cls) if STORED not in field.metadata)
    plain = {field.name: key for field, key in named if key}
    keyed = tuple((field.name, field.metadata[STORED]) for field in fields(cls) if STORED in field.metadata)
    keys = {key: _encoder(hints[name]) for name, key in plain.items()}
    changed = tuple((key, encode) for key, encode in keys.items() if encode is not _unchanged)
    read = attrgetter(*plain, "__class__")

    def encode_fields(value: Any) -> dict[str, Any]:
        out = dict(zip(keys, read(value), strict=False))
        for key, encode in changed:
            out[key] = encode(out[key])
        for name, stored in keyed:
            out |= _encode_keyed(stored, getattr(value, name))
        return out

    return encode_fields


def _encode_keyed(keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return all keys of such a field but the last, and the one key of its object, which its class names."""
    out: dict[str, Any] = dict.fromkeys(keys[:-1])
    if isinstance(value, Stored):
        out[value.stored_as] = dict(value.data)
    elif value is not None:
        plain = to_json(value) if is_dataclass(value) else value.model_dump(mode="json")
        out[getattr(value, "stored_as", keys[-1])] = plain
    return out


def _mapping_encoder(key: Converter, value: Converter, keyed: bool) -> Converter:
    if not keyed:
        return lambda mapping: [[key(k), value(v)] for k, v in mapping.items()]
    return lambda mapping: {str(key(k)): value(v) for k, v in mapping.items()}


def _unchanged(value: Any) -> Any:
    return value


def _encode_float(value: Any) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
