"""Attributes of base classes under the names of the version before, for extension packages that use or override them.

They are deprecated: each use warns, and new code uses the new names.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound=type)


class Renamed:
    """An attribute that has another name now; it reads and sets that one."""

    def __init__(self, now: str) -> None:
        self.now = now
        self.before = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.before = name

    def __get__(self, instance: Any, owner: type) -> Any:
        warnings.warn(f"{owner.__name__}.{self.before} is {self.now} now", DeprecationWarning, stacklevel=2)
        overriding = [place for place, base in enumerate(owner.__mro__) if self._overridden(base)]
        if not overriding:
            return getattr(owner if instance is None else instance, self.now)
        # An override calls `super()` under the old name: the attribute above it is meant, not the override again.
        above = owner.__mro__[overriding[-1] + 1 :]
        found = next(vars(base)[self.now] for base in above if self.now in vars(base))
        return found.__get__(instance, owner) if hasattr(found, "__get__") else found

    def __set__(self, instance: Any, value: Any) -> None:
        setattr(instance, self.now, value)

    def _overridden(self, base: type) -> bool:
        return not isinstance(vars(base).get(self.before, self), Renamed)


def take_over(cls: type) -> None:
    """Give attributes that a class defines under old names their new names; for `__init_subclass__`."""
    for name, value in list(vars(cls).items()):
        renamed = next(
            (vars(base)[name] for base in cls.__mro__[1:] if isinstance(vars(base).get(name), Renamed)), None
        )
        if renamed is not None and renamed.now not in vars(cls):
            setattr(cls, renamed.now, value)


class KeepsOldNames:
    """A base class whose subclasses may define attributes under their old names."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        take_over(cls)


def old_arguments(**renamed: str) -> Callable[[T], T]:
    """Return a decorator of a class that may be called with old names of arguments; `renamed` maps old to new."""

    def decorate(cls: T) -> T:
        init = cls.__init__  # type: ignore[misc]

        @functools.wraps(init)
        def translated(self: Any, *args: Any, **named: Any) -> None:
            init(self, *args, **{renamed.get(name, name): value for name, value in named.items()})

        cls.__init__ = translated  # type: ignore[misc]
        return cls

    return decorate
