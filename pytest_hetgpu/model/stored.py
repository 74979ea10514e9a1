"""A field whose object is of a class that only an extension knows, as it is read back from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STORED = "stored"
"""The keys that a field may have in JSON, in the metadata of that field: its class says which, by `stored_as`."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a field with several keys was read back as: the key that it has in JSON, and the plain data there."""

    stored_as: str
    data: Mapping[str, object] = field(default_factory=dict)
