"""One side of a comparison as a file, so that a baseline stays available after its runs are deleted."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_hetgpu.analysis.compare.sides import Side
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.store.encode import RecordError, from_json, to_json
from pytest_hetgpu.store.files import read_input, write_atomically
from pytest_hetgpu.store.redaction.redact import redact_json

SCHEMA = 1


def save(path: Path, side: Side) -> None:
    """Write a side into the file, redacted. Raise OSError."""
    kept = {"schema": SCHEMA, "side": to_json(side)}
    write_atomically(path, f"{json.dumps(redact_json(kept))}\n".encode("ascii"))


def read(path: Path) -> Side:
    """Read a side that `save` wrote. Raise UsageError, naming the file, if it cannot be read."""
    try:
        data = json.loads(read_input(path))
        schema = data.get("schema") if isinstance(data, dict) else None
        if type(schema) is not int or "side" not in data:
            raise UsageError(f"{path}: not a baseline that a run has kept")
        if schema > SCHEMA:
            raise UsageError(f"{path}: written by a newer version (schema {schema}, known: {SCHEMA})")
        return from_json(Side, data["side"])
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError, RecordError) as error:
        raise UsageError(f"{path}: not a baseline that a run has kept ({error})") from None
