"""Outputs of Terraform and OpenTofu (`terraform output -json`): addresses, and the things that have them.

https://developer.hashicorp.com/terraform/cli/commands/output: a map of names to `value`, `type` and `sensitive`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pytest_hetgpu.extensions.inventories._json import JsonText, Path, place
from pytest_hetgpu.extensions.inventories.base import (
    MOST_HOSTS,
    UNKNOWN_PLATFORM,
    HostListing,
    InventorySource,
    ListedHost,
    MalformedInventory,
    SkippedEntry,
)
from pytest_hetgpu.model.messages import show

# Suffixes of names of outputs that hold addresses; the longest match is removed.
_ADDRESS = re.compile(
    r"^(?:(?P<what>.+?)[_-])??(?P<way>(?:(?P<side>public|private|internal|external)[_-])?"
    r"(?:ipv?[46]?s?|ip[_-]address(?:es)?|address(?:es)?|hosts?|hostnames?|dns(?:[_-]names?)?|nodes?))$"
)
_PUBLIC = ("public", "external")
_OF_HOST = ("address", "private_ip", "private_dns", "ip", "host", "hostname", "public_ip", "public_dns")
_FROM_HERE = ("public_ip", "public_dns")
_DEEPEST = 6

Side = str


class TerraformSource(InventorySource):
    """Hosts by the names of outputs.

    - A sensitive output is skipped, and its texts are redacted from then on.
    - A map with an address (`private_ip`, `ip`, `public_ip`, ...) is a host.
    - If an output's name ends in a word for addresses (`g4dn_private_ips`, `hosts`), every text below it is an address
      of the thing before that word.
    - Keys of maps are groups, too.
    - If a thing has as many public as private addresses, this machine uses the public ones.
    - A database has an address, too. So the user, or a host's groups, must give its hardware.
    """

    title = "outputs of Terraform"

    @classmethod
    def read(cls, text: str) -> HostListing:
        document = JsonText(text)
        outputs = document.take(document.root, dict, (), "a map of outputs, as `terraform output -json` prints it")
        hosts: list[tuple[str, Side, ListedHost]] = []
        skipped: list[SkippedEntry] = []
        secrets: list[str] = []
        for name, output in outputs.items():
            if not isinstance(output, dict) or "value" not in output:
                raise MalformedInventory(
                    document.line((name,)),
                    f"{place((name,))} has no key 'value': give what `terraform output -json` prints, all of it",
                )
            line = document.where((name,))
            if output.get("sensitive") is not False and output.get("sensitive") is not None:
                skipped.append(SkippedEntry(_name(name), "is sensitive", line))
                secrets += _texts(output["value"])
                continue
            found = list(_hosts(document, name, output["value"]))
            if not found:
                skipped.append(SkippedEntry(_name(name), "holds no addresses by its name", line))
            hosts += found
            if len(hosts) > MOST_HOSTS:
                raise MalformedInventory(line, f"names more than {MOST_HOSTS:,} hosts")
        return HostListing(tuple(_joined(hosts)), tuple(skipped), tuple(secrets))


def _name(name: str) -> str:
    return name if re.fullmatch(r"[\w-]{1,80}", name) else show(name)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a value, at any depth."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list | dict):
            rest += one.values() if isinstance(one, dict) else one


def _hosts(document: JsonText, name: str, value: Any) -> Iterator[tuple[str, Side, ListedHost]]:
    named = _ADDRESS.match(name.lower())
    what = (name[: len(named["what"])] if named and named["what"] else "") or name
    side = "" if not named or not named["side"] else "public" if named["side"] in _PUBLIC else "private"
    groups = tuple(dict.fromkeys((what, name)))
    for found in _below(document, (name, "value"), value, groups, bool(named)):
        yield what, side, found


def _below(
    document: JsonText, path: Path, value: Any, groups: tuple[str, ...], addresses: bool
) -> Iterator[ListedHost]:
    """Yield every host in a value. Texts are addresses only if the output's name is one for addresses."""
    if len(path) > _DEEPEST:
        return
    if isinstance(value, str):
        if addresses and value:
            yield ListedHost(value, _called(groups), document.where(path), groups=groups, platform=UNKNOWN_PLATFORM)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _below(document, (*path, index), item, groups, addresses)
    elif isinstance(value, dict):
        own = {key: value[key] for key in _OF_HOST if isinstance(value.get(key), str) and value[key]}
        if own:
            yield _host(document, path, value, own, groups)
            return
        for key, item in value.items():
            yield from _below(document, (*path, key), item, (*groups, key), addresses)


def _host(
    document: JsonText, path: Path, value: dict[str, Any], own: dict[str, str], groups: tuple[str, ...]
) -> ListedHost:
    address = next(iter(own.values()))
    here = next((own[key] for key in _FROM_HERE if key in own), "")
    texts = {key: value[key] for key in ("user", "key", "hardware", "instance_type", "name") if _text(value.get(key))}
    port = value.get("port")
    more = (texts[key] for key in ("instance_type", "name") if key in texts)
    return ListedHost(
        address=address,
        name=texts.get("name", _called(groups)),
        line=document.where(path),
        engine_host="" if here == address else here,
        user=texts.get("user"),
        port=None if port is None else str(port),
        key=texts.get("key"),
        hardware=tuple(filter(None, [texts.get("hardware")])),
        groups=(*groups, *more),
        platform=UNKNOWN_PLATFORM,
    )


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _called(groups: tuple[str, ...]) -> str:
    return groups[-1] if len(groups) > 2 else groups[0]


def _joined(hosts: list[tuple[str, Side, ListedHost]]) -> Iterator[ListedHost]:
    """Yield hosts in order; public addresses become the way to as many private ones of the same thing."""
    sides: dict[str, dict[Side, list[ListedHost]]] = {}
    for what, side, found in hosts:
        sides.setdefault(what, {}).setdefault(side, []).append(found)
    ways = {
        id(private): public.address
        for both in sides.values()
        if len(both.get("public", ())) == len(both.get("private", ()))
        for public, private in zip(both.get("public", ()), both.get("private", ()), strict=True)
    }
    used = {what for what, side, found in hosts if id(found) in ways}
    for what, side, found in hosts:
        if id(found) in ways:
            way = ways[id(found)]
            yield replace(found, engine_host="" if way == found.address else way)
        elif side != "public" or what not in used:
            yield found
