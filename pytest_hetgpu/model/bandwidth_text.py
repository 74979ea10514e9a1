"""Upper bounds of bandwidths as text. Pure."""

from __future__ import annotations

from pytest_hetgpu.model.outcome import LinkBandwidth

MORE = (
    "More than the wire carried: data that took another way (memory that nodes share, a second adapter, half of it the "
    "faster direction), or a measurement of the wire that something else held up."
)


def describe_link(link: LinkBandwidth) -> str:
    """Describe a link: `pump 1, 4 streams, node1 to node0, round trip 36 us`.

    Caveats follow. If the bandwidth is not known, the text gives the reason.
    """
    if link.gbs is None:
        return f"not known: {link.why}"
    parts = [link.source]
    if link.between:
        parts.append(" to ".join(link.between))
    if link.rtt is not None:
        parts.append(f"round trip {link.rtt:.0f} us")
    return ", ".join((*parts, *link.caveats))


def gbs(value: float) -> str:
    """Format a bandwidth with three digits: `0.0478`, `1.17`, `24.6`."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def percent(fraction: float) -> str:
    """Format a fraction as `42 %`; below 1 % with one more digit."""
    return f"{100 * fraction:.0f} %" if fraction >= 0.01 else f"{100 * fraction:.1f} %"
