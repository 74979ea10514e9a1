"""What UCX's answers to callers mean: the words of `ucs_status_string` (src/ucs/type/status.c), or their numbers."""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.signatures.base import Weight
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_NET, _NONE, _MEMORY = Kind.NETWORK_FAILURE, Kind.TRANSPORT_UNAVAILABLE, Kind.OUT_OF_MEMORY

# Of a status that is not here the caller knows no more than that it failed; what UCX logged says more.
_STATUSES: dict[str, tuple[int, Kind, Weight]] = {
    "Out of memory": (-4, _MEMORY, Weight.RELAYED),
    "Destination is unreachable": (-6, _NET, Weight.SYMPTOM),
    "Function not implemented": (-8, _NONE, Weight.RELAYED),
    "Failed to connect some of the requested endpoints": (-13, _NET, Weight.SYMPTOM),
    "No such device": (-14, _NONE, Weight.RELAYED),
    "Request canceled": (-16, Kind.ERROR, Weight.CONSEQUENCE),
    "Operation timed out": (-20, _NET, Weight.SYMPTOM),
    "Unsupported operation": (-22, _NONE, Weight.RELAYED),
    "Operation rejected by remote peer": (-23, _NET, Weight.SYMPTOM),
    "Endpoint is not connected": (-24, _NET, Weight.UNSPECIFIC),
    "Connection reset by remote peer": (-25, _NET, Weight.UNSPECIFIC),
    "Endpoint timeout": (-80, _NET, Weight.SYMPTOM),
}
_WORDS = lazy("|".join(map(re.escape, _STATUSES)))
_NUMBERS = {number: words for words, (number, *_) in _STATUSES.items()}
# Other functions' numbers are Open MPI's own.
_NUMBER = lazy(r"\buc[pst]_\w{1,40}(?:\(\w{0,20}\))? failed: (-\d{1,3})\s*$")


def status(text: str) -> tuple[str, Kind, Weight]:
    """What a text that relays a status says: its words ("" where it is none of those that tell), kind and weight."""
    found, number = _WORDS.search(text), _NUMBER.search(text)
    words = found[0] if found else _NUMBERS.get(int(number[1]), "") if number else ""
    if not words:
        return "", Kind.ERROR, Weight.UNSPECIFIC
    return words, *_STATUSES[words][1:]
