"""A field with an object of a class that only an extension defines, in the form that JSON gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STORED = "stored"
"""The metadata key with the JSON keys that a field may have; the field's class chooses one by `stored_as`."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A field with several possible JSON keys, as read back: the key that it has in JSON, and the plain data there."""

    stored_as: str
    data: Mapping[str, object] = field(default_factory=dict)
