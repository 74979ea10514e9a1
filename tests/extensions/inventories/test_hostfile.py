"""Hostfiles of Open MPI, MPICH and ssh."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.inventories.base import ListedHost, MalformedInventory, SkippedEntry
from pytest_hetgpu.extensions.inventories.hostfile import HostfileSource

TEXT = """\
# the cluster
gpu1 slots=8 max_slots=16

gpu2:4
me@gpu3:2222
me@gpu4
10.0.0.5 slots = 2   # hardware=g4dn, in rack 2
[fe80::1]:2
fe80::2
gpu5:2 ifhn=gpu5-ib binding=user:0,1
gpu6 slots=2 user=you port=22
gpu1 slots=8
"""


def test_every_form() -> None:
    found = HostfileSource.read(TEXT).hosts
    assert found == (
        ListedHost("gpu1", "gpu1", 2, slots=16),
        ListedHost("gpu2", "gpu2", 4, slots=4),
        ListedHost("gpu3", "gpu3", 5, user="me", port="2222"),
        ListedHost("gpu4", "gpu4", 6, user="me"),
        ListedHost("10.0.0.5", "10.0.0.5", 7, slots=2, hardware=("g4dn",)),
        ListedHost("fe80::1", "fe80::1", 8, slots=2),
        ListedHost("fe80::2", "fe80::2", 9),
        ListedHost("gpu5-ib", "gpu5", 10, engine_host="gpu5", slots=2),
        ListedHost("gpu6", "gpu6", 11, user="you", port="22", slots=2),
    )


def test_what_is_left_out() -> None:
    listing = HostfileSource.read("^a\nb slots=0\nc\n")
    assert listing.skipped == (SkippedEntry("a", "is excluded by ^", 1), SkippedEntry("b", "has no slots", 2))
    assert [one.name for one in listing.hosts] == ["c"]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("a\nb slot=4", 2, "unknown setting 'slot' of b (known: "),
        ("b slot=4", 1, "did you mean 'slots'?)"),
        ("a b", 1, "'b' is no setting like slots=4; one host stands in a line"),
        ("a slots=many", 1, "slots of a must be a number, not 'many'"),
        ("a:ssh", 1, "'a:ssh': what follows the colon must be a number of ranks"),
        ("+n2", 1, "'+n2' counts hosts of an allocation; here a host has a name or an address"),
        ("@a", 1, "'@a' has no user before the @"),
        ("[fe80::1", 1, "'[fe80::1' is no address in brackets"),
    ],
)
def test_what_is_wrong(text: str, line: int, told: str) -> None:
    with pytest.raises(MalformedInventory) as caught:
        HostfileSource.read(text)
    assert told in str(caught.value)
    assert caught.value.line == line
