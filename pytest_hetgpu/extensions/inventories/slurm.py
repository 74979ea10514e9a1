"""Nodes of Slurm: `scontrol show nodes` and `sinfo`, as JSON and as text.

Formats: 22.05 as printed (`sinfo --json` has `nodes`, scontrol has no JSON for them). Since 23.02 by
https://slurm.schedmd.com/rest_api.html (`nodes` of scontrol, `sinfo` of sinfo, states as lists).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_hetgpu.extensions.inventories._gpus import identify
from pytest_hetgpu.extensions.inventories._hostlist import expand
from pytest_hetgpu.extensions.inventories._json import JsonText, Path
from pytest_hetgpu.extensions.inventories.base import (
    MOST_HOSTS,
    UNKNOWN_PLATFORM,
    HostListing,
    InventorySource,
    ListedHost,
    MalformedInventory,
    SkippedEntry,
    number,
)
from pytest_hetgpu.model.messages import show

# States without new jobs, in combination with any other. sinfo appends signs with the same meaning to a state.
_UNUSABLE = {
    *(
        "DOWN",
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "FAIL",
        "FAILING",
        "ERROR",
        "FUTURE",
        "UNKNOWN",
        "NOT_RESPONDING",
        "NO_RESPOND",
    ),
    *(
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWER_DOWN",
        "MAINT",
        "MAINTENANCE",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "INVALID_REG",
    ),
    *("DRNG", "COMPLETING_FAIL", "UNK", "FUTR", "INVAL"),
}
_SIGNS = {"*": "does not respond", "~": "is powered off", "%": "is powering off", "$": "is reserved for maintenance"}
# A type may begin with a digit (1080ti, 3g.20gb); a type of digits alone (3090) is recognised by the following text.
_GRES = re.compile(
    r"gpu(?::(?P<type>(?![0-9]+(?:[(,]|$))[^:,()]+))?(?::(?P<count>[0-9]+))?(?:\([^()]*\))?(?=[, ]|$)", re.ASCII
)
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_:]*)=")
_COLUMNS = {
    "PARTITION": "partitions",
    "GRES": "gres",
    "STATE": "state",
    "NODE_ADDR": "address",
    "REASON": "reason",
    **dict.fromkeys(("NODELIST", "HOSTNAMES", "NODE"), "names"),
    **dict.fromkeys(("AVAIL_FEATURES", "AVAIL_FE", "ACTIVE_FEATURES", "FEATURES"), "features"),
}


@dataclass(slots=True)
class _Node:
    """A node in one entry; another partition may list the same node again.

    `gres` is None if the entry has none.
    """

    name: str
    line: int | None
    address: str = ""
    gres: str | None = None
    features: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    reason: str = ""


class SlurmSource(InventorySource):
    """The nodes that jobs can start on. The type in `gres` gives the platform; without one the features do.

    Features and partitions are groups. A node that is down, drained or does not respond is skipped, with its reason.
    """

    title = "nodes of Slurm"
    commands = (("scontrol", "show", "nodes", "--json"), ("sinfo", "--json"), ("scontrol", "show", "nodes"))

    @classmethod
    def read(cls, text: str) -> HostListing:
        start = text.lstrip()[:1]
        told_of = _from_json(text) if start in ("{", "[") else _from_text(text)
        nodes: dict[str, _Node] = {}
        for node in told_of:
            first = nodes.setdefault(node.name, node)
            if first is not node:
                first.partitions += node.partitions
                first.features += node.features
                first.gres = first.gres or node.gres
        if len(nodes) > MOST_HOSTS:
            raise MalformedInventory(None, f"names more than {MOST_HOSTS:,} nodes")
        judged = [_judged(node) for node in nodes.values()]
        found = tuple(one for one in judged if isinstance(one, ListedHost))
        return HostListing(found, tuple(one for one in judged if isinstance(one, SkippedEntry)))


def _judged(node: _Node) -> ListedHost | SkippedEntry:
    reason = f" ({node.reason[:200]})" if node.reason else ""
    for state in node.states:
        plain = state.rstrip("*~#!%$@^+-").upper()
        if plain in _UNUSABLE:
            return SkippedEntry(node.name, f"is {plain.lower().replace('_', ' ')}{reason}", node.line)
        sign = next((_SIGNS[sign] for sign in state if sign in _SIGNS), "")
        if sign:
            return SkippedEntry(node.name, f"{sign}{reason}", node.line)
    types, gpus = _gpus(node.gres or "")
    platform, arch = identify(*types, *node.features) if gpus else ("", "")
    if gpus and len({identify(one) for one in types}) > 1:
        return SkippedEntry(node.name, f"has GPUs of several kinds ({show(node.gres)}): a host is of one", node.line)
    return ListedHost(
        address=node.address or node.name,
        name=node.name,
        line=node.line,
        groups=tuple(dict.fromkeys((*node.partitions, *node.features, *types))),
        platform=(platform or UNKNOWN_PLATFORM) if gpus else "",
        arch=arch,
        gpus=None if node.gres is None else gpus,
    )


def _gpus(gres: str) -> tuple[list[str], int]:
    """Return types and number of GPUs: `gpu:a100:4(S:0-1),gpu:2`; "gpu" alone is one."""
    types, count = [], 0
    for found in _GRES.finditer(gres):
        if found.start() and gres[found.start() - 1] not in ", ":
            continue
        count += (number(found["count"]) or 0) if found["count"] else 1
        types += [found["type"]] if found["type"] else []
    return types, count


def _words(value: Any) -> list[str]:
    """Split a list, or a text at commas; the words of Slurm for nothing give nothing."""
    parts = value if isinstance(value, list) else re.split(r"[,&|+]", value) if isinstance(value, str) else []
    texts = (part.strip() for part in parts if isinstance(part, str))
    return [text for text in texts if text and text.strip("()").lower() not in ("null", "n/a", "none")]


def _from_json(text: str) -> Iterable[_Node]:
    document = JsonText(text)
    root = document.root
    key = next((key for key in ("nodes", "sinfo") if isinstance(root, dict) and key in root), None)
    if key is None:
        raise MalformedInventory(
            1, "has neither nodes nor sinfo: give what `scontrol show nodes --json` or `sinfo --json` prints"
        )
    for index, entry in enumerate(document.take(root[key], list, (key,), "a list")):
        document.take(entry, dict, (key, index), "a map")
        line = document.where((key, index))
        yield from _of_sinfo(document, entry, index, line) if key == "sinfo" else _of_node(document, entry, index, line)


def _of_node(document: JsonText, entry: Mapping[str, Any], index: int, line: int | None) -> Iterable[_Node]:
    path: Path = ("nodes", index)
    name = document.take(entry.get("name", entry.get("hostname")), str, (*path, "name"), "a node's name")
    yield _Node(
        name=name,
        line=line,
        address=_text(entry.get("address")),
        gres=_text(entry.get("gres")),
        features=_words(entry.get("features")) + _words(entry.get("active_features")),
        partitions=_words(entry.get("partitions")),
        states=_words(entry.get("state")) + _words(entry.get("state_flags")),
        reason=_text(entry.get("reason")),
    )


def _of_sinfo(document: JsonText, entry: Mapping[str, Any], index: int, line: int | None) -> Iterable[_Node]:
    """Yield the nodes of a line of sinfo: equal nodes of one partition."""

    def inner(name: str, key: str) -> Any:
        part = entry.get(name)
        return part.get(key) if isinstance(part, dict) else None

    path: Path = ("sinfo", index, "nodes")
    nodes = document.take(entry.get("nodes"), dict, path, "a map")
    names = document.take(nodes.get("nodes"), list, (*path, "nodes"), "a list of names")
    addresses = nodes.get("addresses")
    addresses = addresses if isinstance(addresses, list) and len(addresses) == len(names) else names
    for name, address in zip(names, addresses, strict=True):
        yield _Node(
            name=document.take(name, str, (*path, "nodes"), "a list of names"),
            line=line,
            address=_text(address),
            gres=_text(inner("gres", "total")),
            features=_words(inner("features", "total")),
            partitions=_words(inner("partition", "name")),
            states=_words(inner("node", "state")),
            reason=next(iter(_words(inner("reason", "description"))), ""),
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value.strip("()") not in ("null", "N/A") else ""


def _from_text(text: str) -> Iterable[_Node]:
    rows = text.splitlines()
    if any(row.startswith("NodeName=") for row in rows):
        yield from _of_scontrol(rows)
        return
    for line, row in enumerate(rows, 1):
        columns = [_COLUMNS.get(word.upper(), "") for word in row.split()]
        if "names" in columns:
            yield from _of_table(columns, rows, line)
            return
    raise MalformedInventory(
        1, "is neither what `scontrol show nodes` prints nor a table of sinfo with a column NODELIST"
    )


def _of_scontrol(rows: list[str]) -> Iterable[_Node]:
    """Yield the nodes of blocks of `Key=Value` that begin with NodeName, or of one line per node (`--oneliner`)."""
    node: _Node | None = None
    for line, row in enumerate(rows, 1):
        for key, value in _fields(row):
            if key == "NodeName":
                if node:
                    yield node
                node = _Node(value, line, address=value)
            elif node:
                _tell(node, key, value)
    if node:
        yield node


def _tell(node: _Node, key: str, value: str) -> None:
    if key == "NodeAddr":
        node.address = value
    elif key == "Gres":
        node.gres = _text(value)
    elif key in ("AvailableFeatures", "ActiveFeatures"):
        node.features += _words(value)
    elif key == "Partitions":
        node.partitions += _words(value)
    elif key == "State":
        node.states += _words(value)
    elif key == "Reason":
        node.reason = value


def _fields(row: str) -> Iterable[tuple[str, str]]:
    """Yield the `Key=Value` pairs of a line; a value may contain spaces."""
    found = list(_FIELD.finditer(row))
    ends = [*(one.start() for one in found[1:]), len(row)]
    for one, end in zip(found, ends, strict=False):
        yield one[1], row[one.end() : end].strip()


def _of_table(columns: list[str], rows: list[str], header: int) -> Iterable[_Node]:
    """Yield the nodes of a table of sinfo. Only its last column may contain spaces."""
    count = 0
    for line, row in enumerate(rows[header:], header + 1):
        cells = row.split(None, len(columns) - 1)
        # A partition without nodes has no names in this column.
        nobody = columns[-1:] == ["names"] and len(cells) == len(columns) - 1 and "n/a" in cells
        if nobody or not cells or cells == rows[header - 1].split():
            continue
        if len(cells) < len(columns):
            raise MalformedInventory(line, f"has {len(cells)} columns, its heading in line {header} has {len(columns)}")
        values = {name: cell for name, cell in zip(columns, cells, strict=True) if name}
        try:
            names = expand(values["names"], MOST_HOSTS - count) if values["names"] != "n/a" else []
        except ValueError as error:
            raise MalformedInventory(line, str(error)) from None
        count += len(names)
        for name in names:
            yield _Node(
                name=name,
                line=line,
                address=values.get("address", "") if len(names) == 1 else "",
                gres=_text(values["gres"]) if "gres" in values else None,
                features=_words(values.get("features")),
                partitions=[word.rstrip("*") for word in _words(values.get("partitions"))],
                states=_words(values.get("state", "").replace("+", ",")),
                reason=" ".join(_words(values.get("reason"))),
            )
