"""An explanation of a log that is given by its parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.explain import Explanation, explain
from pytest_hetgpu.config.known_failures.load import known_failures


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Explanation]:
    def explained(*parts: str) -> Explanation:
        log = tmp_path / "output.log"
        log.write_text("\n".join(parts) + "\n")
        return explain(log, known_failures())

    return explained
