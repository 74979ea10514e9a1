"""Parameters and variables that ranks do not get, whatever sets them: for runs that search the needed ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.model.job import Hardware, RankContext


def hardware_without(dropped: frozenset[str], kind: Hardware) -> Hardware:
    """Return hardware without the variables of these names."""
    return replace(kind, env={name: value for name, value in kind.env.items() if name not in dropped})


def without_settings(
    dropped: frozenset[str], contexts: Sequence[RankContext], mca: Mapping[str, str]
) -> tuple[list[RankContext], dict[str, str]]:
    """Return contexts and shared parameters without those of these names."""
    names = dropped | {f"OMPI_MCA_{name}" for name in dropped}
    left = [replace(one, env={name: value for name, value in one.env.items() if name not in names}) for one in contexts]
    return left, {name: value for name, value in mca.items() if name not in dropped}
