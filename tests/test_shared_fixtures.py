"""What a machine lacks is a skip, unless somebody said that it must be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

Need = Callable[[str, str], NoReturn]


@pytest.mark.parametrize("required", ["", "lint", "xdist, lint", "stacks"])
def test_what_is_not_required_is_skipped(lacking: Need, monkeypatch: pytest.MonkeyPatch, required: str) -> None:
    monkeypatch.setenv("HETGPU_REQUIRE", required)
    with pytest.raises(pytest.skip.Exception, match="no mpirun"):
        lacking("stack", "no mpirun")


@pytest.mark.parametrize("required", ["stack", "lint,stack", "lint, stack ,xdist"])
def test_what_is_required_fails(lacking: Need, monkeypatch: pytest.MonkeyPatch, required: str) -> None:
    monkeypatch.setenv("HETGPU_REQUIRE", required)
    with pytest.raises(pytest.fail.Exception, match="HETGPU_REQUIRE holds 'stack', but no mpirun"):
        lacking("stack", "no mpirun")
