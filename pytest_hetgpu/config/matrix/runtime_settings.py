"""Keys of files that runtimes define. Each has the name of its runtime."""

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
    """Return the models of those runtimes that have one, by name.

    A key of `base` cannot be that of a runtime.
    """
    found: dict[str, Model] = {}
    for name in sorted(set(runtimes) - base.model_fields.keys()):
        if one := model(runtime_of(name)):
            found[name] = one
    return found


def extended(base: type[M], fields: Mapping[str, tuple[Any, Any]]) -> type[M]:
    """Extend a model by further fields. It keeps the name of `base`."""
    if not fields:
        return base
    given: dict[str, Any] = dict(fields)
    return create_model(base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **given)


def default(model: Model) -> Any:
    """Return the value of a key that is left out; `...`, for a required key, if the model lacks defaults."""
    try:
        return model()
    except ValidationError:
        return ...
