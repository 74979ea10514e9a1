"""What a dead peer cannot cause: the kernel refuses and resets for a process that has gone, all else is the network's.

The words and numbers are those of Linux for ENETDOWN, ENETUNREACH, ETIMEDOUT, EHOSTDOWN and EHOSTUNREACH.
"""

from __future__ import annotations

from pytest_hetgpu.model.lazy_regex import lazy

NO_ROUTE = r"No route to host|Network is (?:unreachable|down)|Host is (?:down|unreachable)|Connection timed out"
"""What strerror(3) and libraries with words of their own call these errors, to be put into a pattern."""

_NO_WAY = lazy(rf"{NO_ROUTE}|\(sockerr -?(?:100|101|110|112|113)\)")


def no_route(text: str) -> bool:
    """Whether a text gives as its reason that the peer's host cannot be reached."""
    return _NO_WAY.search(text) is not None
