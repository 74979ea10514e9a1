"""Holds objects against strict schemas of the API that they are for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

_FILE = Path(__file__).resolve().parents[2] / "data" / "kubernetes" / "schemas.yaml"


@cache
def schemas() -> dict[str, Any]:
    """By `APIVERSION/KIND`; `$defs` are what they share."""
    found: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return found


def wrong(manifest: Mapping[str, Any]) -> list[str]:
    """What the API would not take of an object, as `PATH: WHY`."""
    name = f"{manifest.get('apiVersion')}/{manifest.get('kind')}"
    if name not in schemas():
        return [f"no such object: {name}"]
    schema = {"$defs": schemas()["$defs"], **schemas()[name]}
    found = Draft202012Validator(schema).iter_errors(manifest)
    return [f"{'.'.join(map(str, one.absolute_path))}: {one.message}" for one in found]
