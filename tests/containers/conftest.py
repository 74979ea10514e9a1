"""What the recipes say, read as text: their arguments, and what they download."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

CONTAINERS = Path(__file__).parents[2] / "containers"


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile or an Apptainer definition: `text` is without comments, its arguments put in."""

    image: str
    raw: str
    args: dict[str, str]
    text: str

    @property
    def urls(self) -> set[str]:
        return set(re.findall(r"https?://[^\s\"'\\]+", self.text))


def arguments(raw: str) -> dict[str, str]:
    """Every argument with its default; one that has two is an error."""
    found: dict[str, str] = {}
    block = re.search(r"^%arguments\n((?:    .*\n)+)", raw, re.MULTILINE)
    pairs = (
        re.findall(r"^    (\w+)=(.*)$", block[1], re.MULTILINE)
        if block
        else re.findall(r"^ARG (\w+)=(.*)$", raw, re.MULTILINE)
    )
    for name, value in pairs:
        assert name not in found, f"{name} has two defaults"
        found[name] = value.strip('"')
    return found


def read_recipe(image: str) -> Recipe:
    folder = CONTAINERS / image
    path = next(path for path in (folder / "Dockerfile", folder / f"{image}.def") if path.exists())
    raw = path.read_text(encoding="utf-8")
    args = arguments(raw)
    text = "\n".join(line for line in raw.splitlines() if not line.lstrip().startswith("#"))
    for name, value in args.items():
        text = text.replace(f"${{{name}}}", value).replace(f"{{{{ {name} }}}}", value)
    return Recipe(image, raw, args, text)


@pytest.fixture(scope="session")
def containers() -> Path:
    """The folder with the images."""
    return CONTAINERS


@pytest.fixture(scope="session")
def recipe() -> Callable[[str], Recipe]:
    """`recipe("cpu-ompi5")`: its recipe, read."""
    return read_recipe


@pytest.fixture(scope="session")
def pins() -> dict[str, Any]:
    """pins.yaml, as it stands."""
    document: dict[str, Any] = yaml.safe_load((CONTAINERS / "pins.yaml").read_text(encoding="utf-8"))
    return document


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`image` is every image, `dockerfile` every one that has a Dockerfile."""
    images = sorted(path.name for path in CONTAINERS.iterdir() if path.is_dir())
    if "image" in metafunc.fixturenames:
        metafunc.parametrize("image", images)
    if "dockerfile" in metafunc.fixturenames:
        metafunc.parametrize("dockerfile", [name for name in images if (CONTAINERS / name / "Dockerfile").exists()])
