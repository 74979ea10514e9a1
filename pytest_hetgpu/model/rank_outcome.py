"""Rank outcomes as one line of text."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_hetgpu.model.outcome import RankOutcome

_VENDORS = {"cuda": "CUDA", "rocm": "ROCm", "cpu": "CPU"}


_MOST_RANKS_NAMED = 8


def describe(found: Sequence[RankOutcome]) -> str:
    """Describe ranks: `CUDA rank 0 finished, ROCm rank 1 crashed (SIGSEGV)`, grouped by outcome and vendor.

    Vendors appear if the ranks have several. Without ranks the text is "".
    """
    mixed = len({one.platform for one in found}) > 1
    groups: dict[tuple[str, str], list[int]] = {}
    for one in found:
        groups.setdefault((one.platform if mixed else "", one.status), []).append(one.rank)
    return ", ".join(_group(platform, fate, ranks) for (platform, fate), ranks in groups.items())


def _group(platform: str, fate: str, ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_RANKS_NAMED]))
    shown += f" and {len(ranks) - _MOST_RANKS_NAMED} more" if len(ranks) > _MOST_RANKS_NAMED else ""
    vendor = f"{_VENDORS.get(platform, platform)} " if platform else ""
    if len(ranks) == 1:
        return f"{vendor}rank {shown} {fate}"
    return f"{vendor}ranks {shown} {fate.replace('was ', 'were ')}"
