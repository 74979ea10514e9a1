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

Convert = Callable[[Any], Any]

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_NONE = type(None)
_NOTHING = object()


class Misfit(Exception):
    """A value of the wrong shape; `place` grows on the way out."""

    def __init__(self, wanted: str, found: object) -> None:
        self.place = ""
        self.wanted = wanted
        self.found = "nothing" if found is _NOTHING else reprlib.repr(found)

    def __str__(self) -> str:
        return f"{self.place}: wanted {self.wanted}, found {self.found}"


def is_a(hint: Any, kind: type) -> bool:
    """Whether a hint is a class below `kind` (false for `list[int]` and other things that are no class)."""
    # Python 3.10 takes `list[int]` for a type.
    return typing.get_origin(hint) is None and isinstance(hint, type) and issubclass(hint, kind)


def is_named_tuple(hint: Any) -> bool:
    """Whether a hint is a class of named tuples, which are lists in JSON."""
    return is_a(hint, tuple) and hasattr(hint, "_fields")


def json_key(field: Field[Any]) -> str:
    """Return the key of a dataclass's field in JSON: `key` of its metadata, else its name.

    A renamed field gives its old name as `key`, so that stored runs stay readable.
    """
    return str(field.metadata.get("key", field.name))


def optional(hint: Any) -> Any:
    """X of `X | None`, else None. Raises TypeError for other unions: they have no place in our data."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return None
    others = [arm for arm in typing.get_args(hint) if arm is not _NONE]
    if len(others) != 1:
        raise TypeError(f"no JSON form for {hint}")
    return others[0]


@cache
def decoder(hint: Any) -> Convert:
    """The function that checks JSON types and turns them into a value of this type, or raises Misfit."""
    if hint is float:
        return _float_in
    if hint in _SCALARS:
        return _scalar_in(hint, _SCALARS[hint])
    if is_a(hint, enum.Enum):
        return _enum_in(hint)
    if is_dataclass(hint):
        return _dataclass_in(hint)
    inner = optional(hint)
    if inner is not None:
        decode = decoder(inner)
        return lambda value: None if value is None else decode(value)
    return _container_in(hint)


def _container_in(hint: Any) -> Convert:
    if is_named_tuple(hint):
        parts = _fixed_in(tuple(map(decoder, typing.get_type_hints(hint).values())))
        return lambda data: hint(*parts(data))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if is_a(origin, Mapping):
        key = key_decoder(arguments[0])
        value = decoder(arguments[1])
        return _pairs_in(decoder(arguments[0]), value) if key is None else _mapping_in(key, value)
    if origin is tuple and arguments[-1:] != (...,):
        return _fixed_in(tuple(map(decoder, arguments)))
    if is_a(origin, AbstractSet):
        return _items_in(decoder(arguments[0]), frozenset)
    if is_a(origin, Sequence):
        return _items_in(decoder(arguments[0]), tuple if origin is not list else list)
    raise TypeError(f"no JSON form for {hint}")


def _dataclass_in(cls: Any) -> Convert:
    hints = typing.get_type_hints(cls)
    plain = [field for field in fields(cls) if field.init and STORED not in field.metadata]
    decoders = tuple((field.name, json_key(field), decoder(hints[field.name])) for field in plain)
    keyed = tuple((field.name, field.metadata[STORED]) for field in fields(cls) if STORED in field.metadata)
    needed = frozenset(f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING)

    def decode_fields(data: Any) -> Any:
        if type(data) is not dict:
            raise Misfit("an object", data)
        given = {}
        for name, key, decode in decoders:
            if key in data:
                try:
                    given[name] = decode(data[key])
                except Misfit as misfit:
                    misfit.place = f".{key}{misfit.place}"
                    raise
            elif name in needed:
                raise Misfit(f"a field {key!r}", _NOTHING)
        for name, keys in keyed:
            given[name] = _keyed_in(keys, data)
        return cls(**given)

    return decode_fields


def _keyed_in(keys: Sequence[str], data: Mapping[str, Any]) -> Stored | None:
    for key in keys:
        found = data.get(key)
        if type(found) is dict:
            return Stored(key, found)
        if found is not None:
            misfit = Misfit("an object", found)
            misfit.place = f".{key}"
            raise misfit
    return None


_SCALARS: Mapping[Any, str] = {str: "text", int: "an integer", bool: "true or false", _NONE: "null"}


def _scalar_in(kind: type, wanted: str) -> Convert:
    def decode(value: Any) -> Any:
        if type(value) is not kind:
            raise Misfit(wanted, value)
        return value

    return decode


def _float_in(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int or (type(value) is str and value in NOT_FINITE):
        try:
            return float(value)
        except OverflowError:
            pass
    raise Misfit("a number", value)


def _enum_in(cls: Any) -> Convert:
    members = {member.value: member for member in cls}

    def decode(value: Any) -> Any:
        if type(value) is not str or value not in members:
            raise Misfit(f"one of {', '.join(members)}", value)
        return members[value]

    return decode


def _at(place: object, decode: Convert, value: Any) -> Any:
    """A member of a list or mapping; what is wrong with it is said with its place."""
    try:
        return decode(value)
    except Misfit as misfit:
        misfit.place = f"[{place!r}]{misfit.place}"
        raise


def _items_in(decode: Convert, make: Callable[[Iterable[Any]], Any]) -> Convert:
    def decode_items(data: Any) -> Any:
        if type(data) is not list:
            raise Misfit("a list", data)
        return make([_at(place, decode, item) for place, item in enumerate(data)])

    return decode_items


def _fixed_in(decoders: tuple[Convert, ...]) -> Convert:
    def decode_items(data: Any) -> Any:
        if type(data) is not list or len(data) != len(decoders):
            raise Misfit(f"a list of {len(decoders)}", data)
        return tuple(decode(item) for decode, item in zip(decoders, data, strict=True))

    return decode_items


def _mapping_in(key: Convert, value: Convert) -> Convert:
    def decode_mapping(data: Any) -> Any:
        if type(data) is not dict:
            raise Misfit("an object", data)
        return {_at(name, key, name): _at(name, value, item) for name, item in data.items()}

    return decode_mapping


def _pairs_in(key: Convert, value: Convert) -> Convert:
    pairs = _items_in(_fixed_in((key, value)), tuple)
    return lambda data: dict(pairs(data))


def key_decoder(hint: Any) -> Convert | None:
    """How the name of a JSON member becomes a key of this type; None where it cannot, and pairs are written."""
    if hint is int:
        return _integer_key
    return decoder(hint) if hint is str or is_a(hint, enum.Enum) else None


def _integer_key(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise Misfit("an integer", name) from None
