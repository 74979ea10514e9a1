"""Limits in words. Pure."""

from __future__ import annotations

from pytest_hetgpu.model.outcome import LinkBandwidth

MORE = (
    "More than the wire carried: data that took another way (memory that nodes share, a second adapter, half of it the "
    "faster direction), or a measurement of the wire that something else held up."
)


def describe_link(wire: LinkBandwidth) -> str:
    """`pump 1, 4 streams, node1 to node0, round trip 36 us`, with what casts doubt on it; or why it is not known."""
    if wire.gbs is None:
        return f"not known: {wire.why}"
    parts = [wire.source]
    if wire.between:
        parts.append(" to ".join(wire.between))
    if wire.rtt is not None:
        parts.append(f"round trip {wire.rtt:.0f} us")
    return ", ".join((*parts, *wire.caveats))


def gbs(value: float) -> str:
    """Three digits of a bandwidth: `0.0478`, `1.17`, `24.6`."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def percent(fraction: float) -> str:
    """`42 %`; below one with a digit more."""
    return f"{100 * fraction:.0f} %" if fraction >= 0.01 else f"{100 * fraction:.1f} %"
