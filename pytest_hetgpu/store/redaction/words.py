"""Words of settings and command lines, as data: `words.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

WORDS: Mapping[str, Sequence[str]] = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
"""`common`: values that look like secrets and are none. `login -p`: programs whose login takes a password by `-p`."""
