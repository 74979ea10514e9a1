"""Keys of files that runtimes define: each has the name of its runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError, create_model

from pytest_hetgpu.extensions.runtimes.base import NodeProvider
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of

M = TypeVar("M", bound=BaseModel)
Model = type[BaseModel]


def runtime_settings(
    runtimes: Iterable[str], base: Model, model: Callable[[type[NodeProvider]], Model | None]
) -> dict[str, Model]:
    """The models of those runtimes that have one, by name.

    A key that `base` has already cannot be a runtime's.
    """
    found: dict[str, Model] = {}
    for name in sorted(set(runtimes) - base.model_fields.keys()):
        if one := model(runtime_of(name)):
            found[name] = one
    return found


def extended(base: type[M], fields: Mapping[str, tuple[Any, Any]]) -> type[M]:
    """A model with further fields, under the name of `base`."""
    if not fields:
        return base
    given: dict[str, Any] = dict(fields)
    return create_model(base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **given)


def default(model: Model) -> Any:
    """What a key that is left out stands for; `...`, for a key that must be given, if the model lacks defaults."""
    try:
        return model()
    except ValidationError:
        return ...
