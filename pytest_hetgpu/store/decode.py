"""JSON to dataclasses: one checking converter per type hint, built once. `encode` is the other direction."""

from __future__ import annotations

import enum
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any

from pytest_hetgpu.model.stored import STORED, Stored

Converter = Callable[[Any], Any]

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_NONE = type(None)
_MISSING = object()


class DecodeError(Exception):
    """A value of the wrong shape; `path` grows on the way out."""

    def __init__(self, expected: str, found: object) -> None:
        self.path = ""
        self.expected = expected
        self.found = "nothing" if found is _MISSING else reprlib.repr(found)

    def __str__(self) -> str:
        return f"{self.path}: wanted {self.expected}, found {self.found}"


def is_a(hint: Any, kind: type) -> bool:
    """Return whether a hint is a class below `kind`; False for `list[int]` and other hints that are no class."""
    # In Python 3.10 `list[int]` is an instance of type.
    return typing.get_origin(hint) is None and isinstance(hint, type) and issubclass(hint, kind)


def is_named_tuple(hint: Any) -> bool:
    """Return whether a hint is a class of named tuples, which are lists in JSON."""
    return is_a(hint, tuple) and hasattr(hint, "_fields")


def json_key(field: Field[Any]) -> str:
    """Return the key of a dataclass's field in JSON: `key` of its metadata, else its name.

    A renamed field gives its old name as `key`, so that stored runs stay readable. A field with "" is not stored.
    """
    return str(field.metadata.get("key", field.name))


def optional(hint: Any) -> Any:
    """Return X of `X | None`, else None. Raises TypeError for other unions, which our data does not use."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return None
    others = [arm for arm in typing.get_args(hint) if arm is not _NONE]
    if len(others) != 1:
        raise TypeError(f"no JSON form for {hint}")
    return others[0]


@cache
def decoder(hint: Any) -> Converter:
    """Return the function that checks JSON data and converts it to this type, or raises DecodeError."""
    if hint is float:
        return _decode_float
    if hint in _SCALARS:
        return _scalar_decoder(hint, _SCALARS[hint])
    if is_a(hint, enum.Enum):
        return _enum_decoder(hint)
    if is_dataclass(hint):
        return _dataclass_decoder(hint)
    inner = optional(hint)
    if inner is not None:
        decode = decoder(inner)
        return lambda value: None if value is None else decode(value)
    return _container_decoder(hint)


def _container_decoder(hint: Any) -> Converter:
    if is_named_tuple(hint):
        parts = _fixed_decoder(tuple(map(decoder, typing.get_type_hints(hint).values())))
        return lambda data: hint(*parts(data))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if is_a(origin, Mapping):
        key = key_decoder(arguments[0])
        value = decoder(arguments[1])
        return _pairs_decoder(decoder(arguments[0]), value) if key is None else _mapping_decoder(key, value)
    if origin is tuple and arguments[-1:] != (...,):
        return _fixed_decoder(tuple(map(decoder, arguments)))
    if is_a(origin, AbstractSet):
        return _items_decoder(decoder(arguments[0]), frozenset)
    if is_a(origin, Sequence):
        return _items_decoder(decoder(arguments[0]), tuple if origin is not list else list)
    raise TypeError(f"no JSON form for {hint}")


def _dataclass_decoder(cls: Any) -> Converter:
    hints = typing.get_type_hints(cls)
    plain = [field for field in fields(cls) if field.init and STORED not in field.metadata and json_key(field)]
    decoders = tuple((field.name, json_key(field), decoder(hints[field.name])) for field in plain)
    keyed = tuple((field.name, field.metadata[STORED]) for field in fields(cls) if STORED in field.metadata)
    needed = frozenset(f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING)

    def decode_fields(data: Any) -> Any:
        if type(data) is not dict:
            raise DecodeError("an object", data)
        given = {}
        for name, key, decode in decoders:
            if key in data:
                try:
                    given[name] = decode(data[key])
                except DecodeError as error:
                    error.path = f".{key}{error.path}"
                    raise
            elif name in needed:
                raise DecodeError(f"a field {key!r}", _MISSING)
        for name, keys in keyed:
            given[name] = _decode_keyed(keys, data)
        return cls(**given)

    return decode_fields


def _decode_keyed(keys: Sequence[str], data: Mapping[str, Any]) -> Stored | None:
    for key in keys:
        found = data.get(key)
        if type(found) is dict:
            return Stored(key, found)
        if found is not None:
            error = DecodeError("an object", found)
            error.path = f".{key}"
            raise error
    return None


_SCALARS: Mapping[Any, str] = {str: "text", int: "an integer", bool: "true or false", _NONE: "null"}


def _scalar_decoder(kind: type, expected: str) -> Converter:
    def decode(value: Any) -> Any:
        if type(value) is not kind:
            raise DecodeError(expected, value)
        return value

    return decode


def _decode_float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int or (type(value) is str and value in NOT_FINITE):
        try:
            return float(value)
        except OverflowError:
            pass
    raise DecodeError("a number", value)


def _enum_decoder(cls: Any) -> Converter:
    members = {member.value: member for member in cls}

    def decode(value: Any) -> Any:
        if type(value) is not str or value not in members:
            raise DecodeError(f"one of {', '.join(members)}", value)
        return members[value]

    return decode


def _decode_at(place: object, decode: Converter, value: Any) -> Any:
    """Decode a member of a list or mapping; add its position to the path of an error."""
    try:
        return decode(value)
    except DecodeError as error:
        error.path = f"[{place!r}]{error.path}"
        raise


def _items_decoder(decode: Converter, make: Callable[[Iterable[Any]], Any]) -> Converter:
    def decode_items(data: Any) -> Any:
        if type(data) is not list:
            raise DecodeError("a list", data)
        return make([_decode_at(place, decode, item) for place, item in enumerate(data)])

    return decode_items


def _fixed_decoder(decoders: tuple[Converter, ...]) -> Converter:
    def decode_items(data: Any) -> Any:
        if type(data) is not list or len(data) != len(decoders):
            raise DecodeError(f"a list of {len(decoders)}", data)
        return tuple(decode(item) for decode, item in zip(decoders, data, strict=True))

    return decode_items


def _mapping_decoder(key: Converter, value: Converter) -> Converter:
    def decode_mapping(data: Any) -> Any:
        if type(data) is not dict:
            raise DecodeError("an object", data)
        return {_decode_at(name, key, name): _decode_at(name, value, item) for name, item in data.items()}

    return decode_mapping


def _pairs_decoder(key: Converter, value: Converter) -> Converter:
    pairs = _items_decoder(_fixed_decoder((key, value)), tuple)
    return lambda data: dict(pairs(data))


def key_decoder(hint: Any) -> Converter | None:
    """Return the function that converts a JSON member name to a key of this type.

    Return None if such keys are written as pairs.
    """
    if hint is int:
        return _decode_integer_key
    return decoder(hint) if hint is str or is_a(hint, enum.Enum) else None


def _decode_integer_key(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise DecodeError("an integer", name) from None
