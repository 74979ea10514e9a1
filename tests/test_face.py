"""The package's face: what a scenario author imports, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pytest_hetgpu


def test_everything_promised_is_there() -> None:
    assert sorted(pytest_hetgpu.__all__) == pytest_hetgpu.__all__
    for name in pytest_hetgpu.__all__:
        assert getattr(pytest_hetgpu, name) is not None
    assert set(pytest_hetgpu.__all__) == {*pytest_hetgpu._HOMES, "__version__"}


def test_anything_else_is_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = pytest_hetgpu.nonsense


def test_the_plugin_alone_imports_nothing_heavy() -> None:
    program = "import sys, pytest_hetgpu.plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint(
        {"pydantic", "yaml", "junitparser", "psutil", "pytest_hetgpu.session.session", "pytest_hetgpu.model.job"}
    )
