"""Meanings of a UCX status in callers' messages: texts of `ucs_status_string` (src/ucs/type/status.c), or numbers."""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.signatures.base import Priority
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_NET, _NONE, _MEMORY = Kind.NETWORK_FAILURE, Kind.TRANSPORT_UNAVAILABLE, Kind.OUT_OF_MEMORY

# For other statuses the caller only reports a failure; UCX's own log has more.
_STATUSES: dict[str, tuple[int, Kind, Priority]] = {
    "Out of memory": (-4, _MEMORY, Priority.RELAYED),
    "Destination is unreachable": (-6, _NET, Priority.SYMPTOM),
    "Function not implemented": (-8, _NONE, Priority.RELAYED),
    "Failed to connect some of the requested endpoints": (-13, _NET, Priority.SYMPTOM),
    "No such device": (-14, _NONE, Priority.RELAYED),
    "Request canceled": (-16, Kind.ERROR, Priority.CONSEQUENCE),
    "Operation timed out": (-20, _NET, Priority.SYMPTOM),
    "Unsupported operation": (-22, _NONE, Priority.RELAYED),
    "Operation rejected by remote peer": (-23, _NET, Priority.SYMPTOM),
    "Endpoint is not connected": (-24, _NET, Priority.UNSPECIFIC),
    "Connection reset by remote peer": (-25, _NET, Priority.UNSPECIFIC),
    "Endpoint timeout": (-80, _NET, Priority.SYMPTOM),
}
_WORDS = lazy("|".join(map(re.escape, _STATUSES)))
_NUMBERS = {number: words for words, (number, *_) in _STATUSES.items()}
# Other functions' numbers are Open MPI's own.
_NUMBER = lazy(r"\buc[pst]_\w{1,40}(?:\(\w{0,20}\))? failed: (-\d{1,3})\s*$")


def status(text: str) -> tuple[str, Kind, Priority]:
    """Return the status in a relaying message: its text ("" if it has no meaning here), kind and priority."""
    found, number = _WORDS.search(text), _NUMBER.search(text)
    words = found[0] if found else _NUMBERS.get(int(number[1]), "") if number else ""
    if not words:
        return "", Kind.ERROR, Priority.UNSPECIFIC
    return words, *_STATUSES[words][1:]
