"""A lab of two guests, and runs of the product over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.lab import lab as roce
from tests.real.nodes_here import properties

ROOT = Path(__file__).parents[2]
HOSTS = ROOT / "matrices" / "roce-lab.hosts.yaml"
Cells = Callable[..., Mapping[str, Mapping[str, str]]]


@pytest.fixture(scope="session")
def guests(lacking: Callable[[str, str], None], stacks_here: Callable[[str], Path]) -> Iterator[roce.Lab]:
    """Two guests for all tests; each leaves them as it found them."""
    if lack := roce.lacks():
        lacking("lab", lack)
    stacks_here("openmpi-5")
    with roce.running() as made:
        yield made


@pytest.fixture
def cells(guests: roce.Lab, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Cells:
    """Runs a matrix over the guests; gives the properties of its cells by name."""
    for name, value in guests.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HETGPU_LEASES", str(pytester.mkdir("leases")))

    def run(matrix: Path | str, *arguments: str) -> Mapping[str, Mapping[str, str]]:
        if isinstance(matrix, str):
            matrix = pytester.makefile(".yaml", lab=matrix)
        given = ("--hetgpu-matrix", matrix, "--hetgpu-inventory", HOSTS, "--hetgpu-wire", "off", *arguments)
        pytester.runpytest_subprocess("-p", "no:cacheprovider", *map(str, given), timeout=900)
        return properties(pytester.path / "reports")

    return run
