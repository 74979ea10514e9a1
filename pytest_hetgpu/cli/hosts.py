"""The hosts of an inventory as text and as data: each kind with its hosts, and omitted entries with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_hetgpu.config.inventory.hosts import Host, SourcedHost
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.inventory.sources import LoadedSource, kind_of
from pytest_hetgpu.extensions import registry
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.store.text import clean

MOST_SHOWN = 20
"""The largest number of hosts of one kind, or of omitted entries, with a line each; the others are counted."""


def inventory_lines(inventory: Inventory) -> Iterator[str]:
    """Yield lines for a terminal."""
    for name, hosts in inventory.hardware.items():
        yield f"{inventory.file} gives {name}: {_count(len(hosts), 'host')}"
        yield from _first_lines([_describe_host(host) for host in hosts])
    hosts_of = _hosts(inventory)
    for one in inventory.sources:
        yield from _source_lines(one, hosts_of)


def inventory_json(inventory: Inventory) -> list[dict[str, Any]]:
    """Return the same as data: a list of sources, each with its `hosts` and the omitted entries in `left`."""
    hosts_of = _hosts(inventory)
    sources: list[dict[str, Any]] = []
    if inventory.hardware:
        hosts = [{"kind": name, **_host_json(host)} for name, hosts in inventory.hardware.items() for host in hosts]
        sources.append({"source": inventory.file, "hosts": hosts, "left": []})
    for one in inventory.sources:
        listed = [{**_entry_json(host), **_host_json(hosts_of[id(host)])} for host in one.hosts]
        left = [{"name": entry.name, "why": entry.why, "line": entry.line} for entry in one.skipped]
        sources.append({"source": str(one.spec), "hosts": listed, "left": left})
    return sources


def extension_lines() -> Iterator[str]:
    """Yield the extensions of other packages, and those of unknown families."""
    for one in registry.added():
        yield f"{one.family}: {clean(str(one))}"
    for one in registry.unknown_entry_points():
        yield clean(f"~ {one}: {one.family!r} is no family here {known(one.family, registry.FAMILIES, 20)}")


def _hosts(inventory: Inventory) -> Mapping[int, Host]:
    return {id(one.entry): one.host for one in inventory.configured_hosts}


def _source_lines(one: LoadedSource, hosts_of: Mapping[int, Host]) -> Iterator[str]:
    yield f"{clean(str(one.spec))} ({one.title}) gives {_count(len(one.hosts), 'host')}"
    kinds: dict[str, list[SourcedHost]] = {}
    for entry in one.hosts:
        kinds.setdefault(kind_of(entry), []).append(entry)
    for kind, entries in kinds.items():
        yield f"  {clean(kind)}: {_count(len(entries), 'host')}"
        yield from (
            f"  {line}" for line in _first_lines([_describe_entry(entry, hosts_of[id(entry)]) for entry in entries])
        )
    if one.skipped:
        yield "  left out:"
        yield from (
            f"  {line}"
            for line in _first_lines([f"{entry.name} {entry.why}{_line_suffix(entry.line)}" for entry in one.skipped])
        )


def _first_lines(lines: list[str]) -> Iterator[str]:
    yield from (f"  {clean(line)}" for line in lines[:MOST_SHOWN])
    if len(lines) > MOST_SHOWN:
        yield f"  ... and {len(lines) - MOST_SHOWN:,} more"


def _line_suffix(line: int | None) -> str:
    return f", line {line}" if line else ""


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _describe_entry(entry: SourcedHost, host: Host) -> str:
    found = entry.found
    details = [
        f"called {found.name}" if found.name not in ("", found.address) else "",
        f"{found.gpus} GPU{'s' * (found.gpus != 1)}" if found.gpus else "",
        f"{found.slots} slot{'s' * (found.slots != 1)}" if found.slots is not None else "",
        f"groups {' '.join(found.groups)}" if found.groups else "",
    ]
    return ", ".join(filter(None, (_describe_host(host), *details)))


def _describe_host(host: Host) -> str:
    reach = host.reach
    details = [
        f"user {reach.user}" if reach.user else "",
        f"port {reach.port}" if reach.port else "",
        f"key {reach.key}" if reach.key else "",
        f"engine {reach.engine}" if reach.engine and host.address not in reach.engine else "",
    ]
    return ", ".join(filter(None, (host.address, *details)))


def _host_json(host: Host) -> dict[str, Any]:
    reach = host.reach
    return {
        "address": host.address,
        "user": reach.user,
        "port": reach.port,
        "key": reach.key,
        "engine": reach.engine,
    }


def _entry_json(entry: SourcedHost) -> dict[str, Any]:
    found = entry.found
    details = {"name": found.name, "groups": list(found.groups), "gpus": found.gpus, "slots": found.slots}
    return {"kind": kind_of(entry), **details, "line": found.line}
