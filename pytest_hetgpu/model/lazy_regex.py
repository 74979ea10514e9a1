"""Patterns that are compiled at first use. Most logs need a few of several hundred."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Lazy:
    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._given), name)
        self.__dict__[name] = value
        return value


def lazy(expression: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that compiles at its first use. Call its methods; `re.sub(pattern, ...)` does not accept it."""
    return cast("re.Pattern[AnyStr]", _Lazy(expression, flags))
