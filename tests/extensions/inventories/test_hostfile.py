"""Hostfiles of Open MPI, MPICH and ssh."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.inventories.base import Found, Left, Malformed
from pytest_hetgpu.extensions.inventories.hostfile import Hostfile

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
    found = Hostfile.read(TEXT).found
    assert found == (
        Found("gpu1", "gpu1", 2, slots=16),
        Found("gpu2", "gpu2", 4, slots=4),
        Found("gpu3", "gpu3", 5, user="me", port="2222"),
        Found("gpu4", "gpu4", 6, user="me"),
        Found("10.0.0.5", "10.0.0.5", 7, slots=2, hardware=("g4dn",)),
        Found("fe80::1", "fe80::1", 8, slots=2),
        Found("fe80::2", "fe80::2", 9),
        Found("gpu5-ib", "gpu5", 10, engine_host="gpu5", slots=2),
        Found("gpu6", "gpu6", 11, user="you", port="22", slots=2),
    )


def test_what_is_left_out() -> None:
    listing = Hostfile.read("^a\nb slots=0\nc\n")
    assert listing.left == (Left("a", "is excluded by ^", 1), Left("b", "has no slots", 2))
    assert [one.name for one in listing.found] == ["c"]


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
    with pytest.raises(Malformed) as caught:
        Hostfile.read(text)
    assert told in str(caught.value)
    assert caught.value.line == line
