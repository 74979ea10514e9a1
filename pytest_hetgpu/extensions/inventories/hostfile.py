"""Hostfiles: `host slots=N` of Open MPI, `host:N` of MPICH, and lists of `user@host:port` for ssh.

Open MPI: https://docs.open-mpi.org/en/v5.0.x/launching-apps/scheduling.html; MPICH:
https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_hetgpu.extensions.inventories.base import (
    HostListing,
    InventorySource,
    ListedHost,
    MalformedInventory,
    SkippedEntry,
    number,
)
from pytest_hetgpu.model.messages import known, show

_HARDWARE = re.compile(r"\bhardware=([^\s,]+)")
_COUNTS = ("slots", "max_slots", "max-slots", "cpus", "count", "cores", "sockets")
_USERS = ("username", "user", "user_name", "user-name")
_OTHERS = ("port", "ifhn", "binding", "topo", "boards", "sockets_max_slots", "cores_max_slots")
_KNOWN = (*_COUNTS, *_USERS, *_OTHERS)


class HostfileSource(InventorySource):
    """A hostfile with one host per line. A repeated host has the slots of all its lines.

    After an `@` a number behind the colon is a port, else it is a number of ranks for MPICH. `# hardware=NAME` in a
    line names the host's hardware in the matrix. Slots are reported, not used: the matrix sets the ranks per node.
    """

    title = "hostfile of Open MPI, MPICH or ssh"

    @classmethod
    def read(cls, text: str) -> HostListing:
        hosts: dict[tuple[str, str | None, str | None], ListedHost] = {}
        skipped: list[SkippedEntry] = []
        for line, row in enumerate(text.splitlines(), 1):
            said, _, comment = row.partition("#")
            tokens = said.replace(" =", "=").replace("= ", "=").split()
            if not tokens:
                continue
            if tokens[0].startswith("^"):
                skipped.append(SkippedEntry(tokens[0][1:], "is excluded by ^", line))
                continue
            found = _host(tokens, tuple(_HARDWARE.findall(comment)), line)
            if found.slots == 0:
                skipped.append(SkippedEntry(found.name, "has no slots", line))
                continue
            key = found.address, found.user, found.port
            first = hosts.setdefault(key, found)
            if first is not found:
                hardware = tuple(dict.fromkeys((*first.hardware, *found.hardware)))
                hosts[key] = replace(first, slots=(first.slots or 1) + (found.slots or 1), hardware=hardware)
        return HostListing(tuple(hosts.values()), tuple(skipped))


def _host(tokens: list[str], hardware: tuple[str, ...], line: int) -> ListedHost:
    first, *settings = tokens
    if first.startswith("+"):
        raise MalformedInventory(
            line, f"{show(first)} counts hosts of an allocation; here a host has a name or an address"
        )
    user, at, address = first.rpartition("@")
    address, count = _behind_colon(address, line)
    port, slots = (count, None) if at else (None, number(count) if count is not None else None)
    if count is not None and not at and slots is None:
        raise MalformedInventory(line, f"{show(first)}: what follows the colon must be a number of ranks")
    if at and not user:
        raise MalformedInventory(line, f"{show(first)} has no user before the @")
    found = ListedHost(address, address, line, user=user or None, port=port, slots=slots, hardware=hardware)
    for setting in settings:
        found = _set(found, setting, line)
    return found


def _behind_colon(text: str, line: int) -> tuple[str, str | None]:
    """Split `host:4`, `[fe80::1]:4` and `fe80::1` into the address and the part after its colon."""
    if text.startswith("["):
        address, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise MalformedInventory(line, f"{show(text)} is no address in brackets")
        return address, rest[1:] if rest else None
    address, colon, rest = text.partition(":")
    return (text, None) if ":" in rest or not colon else (address, rest)


def _set(found: ListedHost, setting: str, line: int) -> ListedHost:
    name, equals, value = setting.partition("=")
    if not equals:
        raise MalformedInventory(line, f"{show(setting)} is no setting like slots=4; one host stands in a line")
    if name not in _KNOWN:
        raise MalformedInventory(
            line, f"unknown setting {show(name)} of {found.name} {known(name, _KNOWN, len(_KNOWN))}"
        )
    if name in _USERS:
        return replace(found, user=value)
    if name == "port":
        return replace(found, port=value)
    if name == "ifhn":
        return replace(found, address=value, engine_host=found.address)
    if name not in _COUNTS:
        return found
    count = number(value)
    if count is None:
        raise MalformedInventory(
            line, f"{setting.partition('=')[0]} of {found.name} must be a number, not {show(value)}"
        )
    return replace(found, slots=count) if name in ("slots", "cpus", "count") else found
