"""What the options of attempts take, from the command line, a variable and an ini file."""

from __future__ import annotations

import pytest

from pytest_hetgpu.session.options import _convert
from pytest_hetgpu.session.settings import OPTIONS


def convert(name: str, value: object) -> object:
    return _convert(next(option for option in OPTIONS if option.name == name), value, "here")


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [
        ("retries", "2", 2),
        ("retry-on", ["timeout", "timeout", "network_failure"], ("timeout", "network_failure")),
        ("retry-on", "timeout, network_failure", ("timeout", "network_failure")),
        ("budget", "3600", 3600.0),
        ("budget", "off", "off"),
        ("quarantine", "1", 1),
        ("quarantine", "off", "off"),
        ("output", "64M", 64 << 20),
        ("output", "off", "off"),
    ],
)
def test_what_is_meant(name: str, given: object, meant: object) -> None:
    assert convert(name, given) == meant


@pytest.mark.parametrize(
    ("name", "given", "complaint"),
    [
        ("retries", "-1", "here: '-1' is not a number from 0 on"),
        ("retries", "two", "here: 'two' is not a number from 0 on"),
        ("retry-on", ["hang"], "here: 'hang' is none of network_failure, .*, which is about what is tested"),
        ("retry-on", ["lunch"], "here: 'lunch' is none of network_failure, [^:]*timeout$"),
        ("budget", "0", "here: '0' is not a number of seconds above 0, nor off"),
        ("quarantine", "0", "here: '0' is less than 1"),
        ("output", "12", "here: '12' is less than 1M"),
        ("output", "much", "here: 'much' is not a size .*, nor off"),
    ],
)
def test_what_cannot_be_meant(name: str, given: object, complaint: str) -> None:
    with pytest.raises(pytest.UsageError, match=complaint):
        convert(name, given)
