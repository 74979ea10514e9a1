"""pytest's own reports without secrets: what its terminal, `--junitxml` and other plugins get of tests and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pluggy import HookimplMarker

from pytest_hetgpu.store.redaction.redact import redact
from pytest_hetgpu.store.text import without_commands

hookimpl = HookimplMarker("pytest")

_TEXTS = ("longrepr", "sections", "user_properties", "wasxfail")
_SHOWN = ("longrepr", "wasxfail")
_DEEPEST = 12
_PYTESTS = "_pytest."


class RedactedReports:
    """Hooks that come before those of whoever prints or keeps a report. A matrix's session registers them."""

    @hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        redact_report(report)

    @hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: Any) -> None:
        redact_report(report)

    @hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: Any) -> None:
        _redacted(excrepr, 0)

    @hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        value = excinfo.value
        value.args = tuple(redact(one) if isinstance(one, str) else one for one in value.args)
        if isinstance(getattr(value, "msg", None), str):
            value.msg = redact(value.msg)

    @hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: Any) -> None:
        said = str(warning_message.message)
        if redact(said) != said:
            warning_message.message = UserWarning(redact(said))
        warning_message.line = None if warning_message.line is None else redact(warning_message.line)

    @hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        """Redact before the terminal prints why a session stopped, and before `--junitxml` is written."""
        for name in ("shouldfail", "shouldstop"):
            why = getattr(session, name)
            if isinstance(why, str):
                setattr(session, name, redact(why))
        for plugin in session.config.pluginmanager.get_plugins():
            properties = getattr(plugin, "global_properties", None)  # of the plugin that writes the XML
            if isinstance(properties, list):
                properties[:] = [(name, redact(str(value))) for name, value in properties]


def redact_report(report: Any) -> None:
    """Remove secrets from all texts of a pytest report, which keeps its shape."""
    for name in _TEXTS:
        value = vars(report).get(name)
        if value:
            setattr(report, name, _redacted(value, 0, _shown if name in _SHOWN else redact))


def _shown(text: str) -> str:
    """Return a text that pytest prints: it may quote a log."""
    return without_commands(redact(text))


def _redacted(value: Any, depth: int, redact: Callable[[str], str] = _shown) -> Any:
    """Return a text, or texts in lists, tuples and error representations of pytest, without secrets."""
    if isinstance(value, str):
        return redact(value)
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        if value and all(isinstance(one, str) for one in value):
            value[:] = redact("\n".join(value)).split("\n")  # a key goes over several lines
        else:
            value[:] = [_redacted(one, depth + 1, redact) for one in value]
    elif type(value) is tuple:
        value = tuple(_redacted(one, depth + 1, redact) for one in value)
    elif hasattr(value, "toterminal"):
        if type(value).__module__.startswith(_PYTESTS):
            _redact_members(value, depth, redact)
        elif (said := redact(str(value))) != str(value):
            value = said
    return value


def _redact_members(value: Any, depth: int, redact: Callable[[str], str]) -> None:
    for name in list(vars(value)):
        if name not in ("style", "path"):
            # Some of pytest's representations are frozen dataclasses.
            object.__setattr__(value, name, _redacted(getattr(value, name), depth + 1, redact))
