"""Versions of libraries as they print them in a log, by lower-case name: `ucx`, `nccl`, `openmpi`."""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.extensions.signatures.engine.versions import SAYINGS


class Versions:
    """Parser of the first version that each library prints; further versions are joined by commas."""

    triggers = tuple(dict.fromkeys(trigger.encode() for _, trigger, _ in SAYINGS))

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, None]] = {}

    def feed(self, line: LogLine) -> None:
        """Take one line that holds a trigger."""
        for name, trigger, pattern in SAYINGS:
            if trigger in line.text and (found := re.search(pattern, line.text[:1000])):
                seen = self._seen.setdefault(name, {})
                if len(seen) < 8:
                    seen.setdefault(found[1])

    @property
    def found(self) -> dict[str, str]:
        """Versions by library, like `{"ucx": "1.18.0", "openmpi": "5.0.11, 5.0.7"}`."""
        return {name: ", ".join(versions) for name, versions in self._seen.items()}
