"""Errors that a dead peer cannot cause: the kernel refuses and resets for a dead process. All others are the network's.

Texts and numbers are those of Linux for ENETDOWN, ENETUNREACH, ETIMEDOUT, EHOSTDOWN and EHOSTUNREACH.
"""

from __future__ import annotations

from pytest_hetgpu.model.lazy_regex import lazy

NO_ROUTE = r"No route to host|Network is (?:unreachable|down)|Host is (?:down|unreachable)|Connection timed out"
"""Pattern of these errors in strerror(3) and in libraries with texts of their own."""

_NO_WAY = lazy(rf"{NO_ROUTE}|\(sockerr -?(?:100|101|110|112|113)\)")


def no_route(text: str) -> bool:
    """Return whether a text gives an unreachable host as its reason."""
    return _NO_WAY.search(text) is not None
