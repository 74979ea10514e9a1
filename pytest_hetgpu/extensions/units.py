"""Units of other projects' numbers, and factors into ours: s, GB/s (1e9 bytes per second), 1/s."""

from __future__ import annotations

_TIMES = {
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "usec": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ns": 1e-9,
}
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_RATES = {"1/s", "msg/s", "messages/s", "Hz", "op/s", "ops/s", "tasks/s"}


def known(unit: str) -> tuple[str, float] | None:
    """Return our unit and the factor into it; None for an unknown unit.

    `MB/s` is 1e6, `MiB/s` 1048576 bytes per second, `Mbit/s` and `Mb/s` 1e6 bits.
    """
    if unit in _TIMES:
        return "s", _TIMES[unit]
    if unit in _RATES:
        return "1/s", 1.0
    if unit == "%":
        return "%", 1.0
    return _bandwidth(unit)


def _bandwidth(unit: str) -> tuple[str, float] | None:
    amount = next((unit.removesuffix(end) for end in ("/sec", "/s", "ps") if unit.endswith(end)), None)
    if amount is None:
        return None
    for ending, base, bytes_ in (("iB", 1024, 1.0), ("B", 1000, 1.0), ("bit", 1000, 0.125), ("b", 1000, 0.125)):
        prefix = amount.removesuffix(ending)
        power = _POWERS.get("K" if prefix == "k" else prefix)
        if amount.endswith(ending) and power is not None and (ending != "iB" or power):
            return "GB/s", float(base**power) * bytes_ / 1e9
    return None
