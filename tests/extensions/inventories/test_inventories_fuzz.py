"""Any text gives hosts or MalformedInventory, and in an inventory hosts or InventoryError, in bounded time."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_hetgpu.config.inventory.file import read
from pytest_hetgpu.errors import InventoryError
from pytest_hetgpu.extensions.inventories.base import HostListing, InventorySource, MalformedInventory
from pytest_hetgpu.extensions.registry import find, shipped

WORDS = st.sampled_from(
    [
        *(
            "gpu1",
            "me@gpu2:22",
            "[::1]:4",
            "slots=4",
            "slots",
            "user=",
            "=",
            "#",
            "hardware=g4",
            "^",
            "+e",
            "n[1-3,7]",
            "n[1-",
        ),
        *(
            "Host",
            "HostName",
            "%h",
            "%x",
            "Match",
            "all",
            "Include",
            "*",
            "!a",
            '"',
            "'",
            "Port",
            "ProxyJump",
            "\\",
            "User",
        ),
        *("NodeName=a", "Gres=gpu:", "gpu:a100:4", "gpu:mi100", "State=DOWN*", "NODELIST", "STATE", "GRES", "(null)"),
        *("\n", "\n", "\t", "\x00", "\x85", "\u2028", "\ud800", "-oProxyCommand=x", "$(id)", "\u0661", "9" * 50),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(WORDS).map(" ".join))
KEYS = st.sampled_from(
    [
        *(
            "nodes",
            "sinfo",
            "items",
            "metadata",
            "name",
            "labels",
            "spec",
            "status",
            "allocatable",
            "conditions",
            "type",
        ),
        *(
            "addresses",
            "address",
            "value",
            "sensitive",
            "private_ip",
            "g4_ips",
            "gres",
            "features",
            "partition",
            "state",
        ),
        *("node", "total", "nvidia.com/gpu", "amd.com/gpu", "amd.com/gpu.device-id", "Ready", "True", "unschedulable"),
    ]
)
ATOMS = st.one_of(KEYS, TEXTS, st.none(), st.booleans(), st.integers(), st.floats(), st.just("gpu:a100:2"))
TREES = st.recursive(
    ATOMS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=6))
)


@pytest.mark.parametrize("name", shipped("inventories"))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.one_of(TEXTS, TREES.map(json.dumps)))
def test_a_source_gives_hosts_or_says_why_not(name: str, text: str) -> None:
    kind = find("inventories", name, InventorySource)  # type: ignore[type-abstract]
    with suppress(MalformedInventory):
        assert isinstance(kind.read(text), HostListing)


@pytest.mark.parametrize("name", shipped("inventories"))
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    data=st.one_of(
        st.binary(),
        TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")),
        TREES.map(json.dumps).map(str.encode),
    )
)
def test_an_inventory_of_it_is_one_or_says_why_not(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(data)
    with suppress(InventoryError):
        for offer in read(f"{name}:{tmp_path / 'source'}").configured_hosts:
            assert not offer.host.address.startswith("-")


@pytest.mark.parametrize("name", ["kubernetes", "slurm", "terraform"])
@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 100_000, '{"nodes": ' + "9" * 5000 + "}", "\ufeff{}"]
)
def test_json_that_is_made_to_hurt(name: str, text: str) -> None:
    kind = find("inventories", name, InventorySource)  # type: ignore[type-abstract]
    with pytest.raises(MalformedInventory):
        kind.read(text)


def repeated(text: str, count: int) -> str:
    return "".join(text.replace("N", str(number)) for number in range(count))


MANY: dict[str, Callable[[int], str]] = {
    "hostfile": lambda count: repeated("hostN slots=4\n", count),
    "ssh_config": lambda count: "Host *\n User me\n" + repeated("Host hN\n HostName hN.example\n", count),
    "slurm": lambda count: json.dumps({"nodes": [{"name": f"n{i}", "gres": "gpu:a100:4"} for i in range(count)]}),
    "terraform": lambda count: json.dumps({"g4_ips": {"value": [f"h{i}" for i in range(count)]}}),
    "kubernetes": lambda count: json.dumps({"items": [_node(i) for i in range(count)]}),
}


def _node(number: int) -> dict[str, Any]:
    return {"metadata": {"name": f"n{number}"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


@pytest.mark.parametrize("name", MANY)
def test_ten_thousand_hosts(name: str, tmp_path: Path) -> None:
    (tmp_path / "many").write_text(MANY[name](10_000))
    assert len(read(f"{name}:{tmp_path / 'many'}").configured_hosts) == 10_000
