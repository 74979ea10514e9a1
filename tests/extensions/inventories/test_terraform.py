"""Outputs of Terraform."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_hetgpu.extensions.inventories.base import MalformedInventory
from pytest_hetgpu.extensions.inventories.terraform import TerraformSource


def outputs(**values: Any) -> str:
    return json.dumps(
        {name: {"value": value, "type": "string", "sensitive": False} for name, value in values.items()}, indent=1
    )


def hosts(**values: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.address, one.engine_host, one.groups) for one in TerraformSource.read(outputs(**values)).hosts]


def test_addresses_by_the_name_of_their_output() -> None:
    assert hosts(g4dn_private_ips=["10.0.0.1", "10.0.0.2"], g4ad_ip="10.0.0.3", ssh_user="ubuntu", region="eu") == [
        ("10.0.0.1", "", ("g4dn", "g4dn_private_ips")),
        ("10.0.0.2", "", ("g4dn", "g4dn_private_ips")),
        ("10.0.0.3", "", ("g4ad", "g4ad_ip")),
    ]


def test_public_addresses_are_the_way_to_private_ones() -> None:
    found = hosts(g4dn_public_ips=["203.0.113.1", "203.0.113.2"], g4dn_private_ips=["10.0.0.1", "10.0.0.2"])
    assert [one[:2] for one in found] == [("10.0.0.1", "203.0.113.1"), ("10.0.0.2", "203.0.113.2")]
    # As many as there are of one kind only: each is a host of its own.
    assert [one[0] for one in hosts(a_public_ip="203.0.113.1", b_private_ip="10.0.0.1")] == ["203.0.113.1", "10.0.0.1"]
    assert len(hosts(a_public_ips=["203.0.113.1"], a_private_ips=["10.0.0.1", "10.0.0.2"])) == 3


def test_maps_have_groups_and_hosts() -> None:
    assert hosts(node_ips={"g4ad": ["10.0.0.1"], "g4dn": "10.0.0.2"}) == [
        ("10.0.0.1", "", ("node", "node_ips", "g4ad")),
        ("10.0.0.2", "", ("node", "node_ips", "g4dn")),
    ]
    one = {"private_ip": "10.0.0.1", "public_ip": "203.0.113.1", "user": "ubuntu", "port": 2200, "hardware": "g4dn"}
    (found,) = TerraformSource.read(outputs(cluster=[one])).hosts
    assert (found.address, found.engine_host, found.user, found.port) == ("10.0.0.1", "203.0.113.1", "ubuntu", "2200")
    assert found.hardware == ("g4dn",)


def test_a_sensitive_value_is_never_shown() -> None:
    text = json.dumps({"node_ips": {"value": ["hunter2"], "type": "string", "sensitive": True}})
    listing = TerraformSource.read(text)
    assert listing.hosts == ()
    assert [(one.name, one.why) for one in listing.skipped] == [("node_ips", "is sensitive")]
    assert "hunter2" not in repr(listing)


def test_what_holds_no_addresses_is_told() -> None:
    left = TerraformSource.read(outputs(region="eu-west-1", node_ips=[])).skipped
    assert [(one.name, one.why, one.line) for one in left] == [
        ("region", "holds no addresses by its name", 2),
        ("node_ips", "holds no addresses by its name", 7),
    ]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("[]", 1, "the file must be a map of outputs, as `terraform output -json` prints it, not an empty list"),
        ('{\n"a": "10.0.0.1"}', 2, "a has no key 'value': give what `terraform output -json` prints, all of it"),
        ('{"a":\n oops}', 2, "not JSON: Expecting value, column 2"),
    ],
)
def test_what_is_wrong(text: str, line: int, told: str) -> None:
    with pytest.raises(MalformedInventory) as caught:
        TerraformSource.read(text)
    assert (str(caught.value), caught.value.line) == (told, line)
