"""Options declared and resolved: command line, environment, ini, default; the first wins."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.session.settings import BUGS, OFF, OPTIONS, Option, Settings

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace


def register(parser: pytest.Parser) -> None:
    """Declare all options."""
    group = parser.getgroup("hetgpu", "compatibility matrices of GPUs, transports and collectives")
    for option in OPTIONS:
        keywords: dict[str, Any] = {"dest": option.dest, "help": option.help, "default": None}
        if option.kind == "flag":
            keywords["action"] = "store_true"
        else:
            keywords["metavar"] = option.metavar
            keywords["action"] = "append" if option.kind in ("paths", "words", "choices") else "store"
            keywords |= {"nargs": "?", "const": option.bare} if option.bare else {}
        group.addoption(option.flag, **keywords)
        if option.everywhere:
            ini = "paths" if option.kind == "paths" else "string"
            parser.addini(option.dest, f"{option.help} (like {option.flag})", type=ini, default=None)  # type: ignore[arg-type]


def resolve(config: pytest.Config, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of the user. Raise pytest.UsageError for an invalid value."""
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option in OPTIONS:
        value, source = _given(option, config, environ)
        if value not in (None, [], ""):
            found[option.field] = _convert(option, value, source)
            sources[option.field] = source
    return Settings(**found, sources=sources)


def _truth(text: str, source: str) -> bool:
    """Return the value of a flag's ini key or variable."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise pytest.UsageError(f"{source}: {text!r} is none of {', '.join(words)}")
    return words[text.lower()]


def _given(option: Option, config: pytest.Config, environ: Mapping[str, str]) -> tuple[Any, str]:
    typed = config.getoption(option.dest)
    if typed not in (None, False):
        return typed, option.flag
    variable = option.dest.upper()
    if option.everywhere and environ.get(variable):
        text = environ[variable]
        return (text.split(os.pathsep) if option.kind == "paths" else text), variable
    if not option.everywhere:
        return None, ""
    value = config.getini(option.dest)
    if value and option.kind == "path" and config.inipath and not (option.may_be_off and value == OFF):
        value = config.inipath.parent / value
    if value and option.kind == "history" and config.inipath and value != OFF and not _is_url(value):
        value = str(config.inipath.parent / value)
    if value and option.kind == "source" and config.inipath:
        value = _beside(value, config.inipath.parent)
    if value and option.kind == "run" and config.inipath and (beside := config.inipath.parent / value).exists():
        value = str(beside)
    return value, f"{option.dest} in {config.inipath}"


def _is_url(text: str) -> bool:
    from pytest_hetgpu.store.history_place import is_url

    return is_url(text)


def _beside(text: str, folder: Path) -> str:
    """Return a path of a configuration file, or of its `KIND:FILE`, relative to the `folder` of that file."""
    kind, colon, path = text.partition(":")
    if not colon or not kind.isidentifier():
        return str(folder / text)
    return text if path in ("", "-") else f"{kind}:{folder / path}"


def _convert(option: Option, value: Any, source: str) -> Any:
    if (option.may_be_off and value == OFF) or (option.word and value == option.word):
        return value
    convert = _CONVERSIONS.get(option.kind)
    if convert:
        return convert(option, value, source)
    if option.kind in ("paths", "words"):
        return tuple(value if option.kind == "words" else map(Path, value))
    return Path(value) if option.kind == "path" else str(value)


def _flag(_: Option, value: Any, source: str) -> bool:
    return value is True or _truth(str(value), source)


def _seconds(option: Option, value: Any, source: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise pytest.UsageError(
            f"{source}: {value!r} is not a number of seconds above 0{', nor off' * option.may_be_off}"
        )
    return seconds


def _chosen(option: Option, value: Any, source: str) -> str | tuple[str, ...]:
    """Return a valid choice; of `choices` a tuple, which an ini key or a variable separates by commas or blanks."""
    if option.kind == "choice":
        words = (str(value),)
    else:
        words = tuple(dict.fromkeys(value if isinstance(value, list) else str(value).replace(",", " ").split()))
    for word in words:
        if word not in option.choices:
            bug = option.name == "retry-on" and word in BUGS
            why = ", which is about what is tested: a retry would make a pass of a bug" if bug else ""
            raise pytest.UsageError(f"{source}: {word!r} is none of {', '.join(option.choices)}{why}")
    return words if option.kind == "choices" else words[0]


def _history(_: Option, value: Any, source: str) -> HistoryPlace:
    from pytest_hetgpu.store.history_place import parse_place

    try:
        return parse_place(str(value), source)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _strategy(_: Option, value: Any, source: str) -> str:
    from pytest_hetgpu.planning.sampling import parse_strategy

    try:
        parse_strategy(str(value))
    except ValueError as error:
        raise pytest.UsageError(f"{source}: {error}") from None
    return str(value).strip()


def _counted(option: Option, value: Any, source: str) -> int:
    text = str(value)
    off = "".join(f", nor {word}" for word in (OFF * option.may_be_off, option.word) if word)
    if option.kind == "size":
        from pytest_hetgpu.model.sizes import parse_size

        try:
            found = parse_size(text)
        except ValueError as error:
            raise pytest.UsageError(f"{source}: {error}{off}") from None
    elif not text.strip().isdecimal() or not text.isascii():
        raise pytest.UsageError(f"{source}: {text!r} is not a number from {option.least} on{off}")
    else:
        found = int(text)
    if found < option.least:
        from pytest_hetgpu.model.sizes import show_size

        least = show_size(option.least) if option.kind == "size" else option.least
        raise pytest.UsageError(f"{source}: {text!r} is less than {least}")
    return found


_CONVERSIONS: Mapping[str, Callable[[Option, Any, str], Any]] = {
    "flag": _flag,
    "seconds": _seconds,
    "choice": _chosen,
    "choices": _chosen,
    "count": _counted,
    "size": _counted,
    "strategy": _strategy,
    "history": _history,
}
