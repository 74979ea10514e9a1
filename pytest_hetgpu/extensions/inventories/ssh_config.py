"""A client configuration of OpenSSH (`man ssh_config`): its `Host` entries that name one host each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

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

_WANTED = ("hostname", "user", "port", "identityfile", "proxyjump", "proxycommand")
_MOST_PATTERNS = 5_000


@dataclass(slots=True)
class _HostBlock:
    """The settings for hosts of these patterns; `line` is that of its heading."""

    patterns: tuple[str, ...]
    line: int
    settings: dict[str, str] = field(default_factory=dict)

    def holds(self, alias: str) -> bool:
        """Return whether it applies to an alias, as in ssh: one pattern matches, and no negated one does."""
        return any(_fits(alias, one) for one in self.patterns if not one.startswith("!")) and not any(
            _fits(alias, one[1:]) for one in self.patterns if one.startswith("!")
        )


class SshConfigSource(InventorySource):
    """Aliases without wildcards are hosts. Entries with wildcards apply to them, too: the first value wins.

    `Match` and `Include` are not followed. A host behind a jump or a proxy command is skipped. Only the user's own ssh
    configuration describes the way to it. The file also lists bastions and code forges. So the user, or the host's
    name, must give its hardware.
    """

    title = "ssh configuration"

    @classmethod
    def read(cls, text: str) -> HostListing:
        blocks, skipped = _blocks(text)
        concrete = [block for block in blocks if any(map(_plain, block.patterns))]
        general = [block for block in blocks if not all(map(_plain, block.patterns))]
        own: dict[str, list[_HostBlock]] = {}
        for block in concrete:
            for alias in filter(_plain, block.patterns):
                own.setdefault(alias, []).append(block)
        if len(own) > MOST_HOSTS or len(general) * len(own) > 10_000_000:
            raise MalformedInventory(
                None, f"names {len(own):,} hosts under {len(general):,} patterns, which is too many"
            )
        found = []
        for alias, entries in own.items():
            held = [block for block in (*entries, *general) if block.holds(alias)]
            held = sorted({id(block): block for block in held}.values(), key=lambda block: block.line)
            settings: dict[str, str] = {}
            for block in held:
                settings = {**block.settings, **settings}
            host = _host(alias, entries[0].line, settings)
            if isinstance(host, ListedHost):
                found.append(host)
            else:
                skipped.append(host)
        return HostListing(tuple(found), tuple(skipped))


def _host(alias: str, line: int, settings: dict[str, str]) -> ListedHost | SkippedEntry:
    for name in ("proxyjump", "proxycommand"):
        if settings.get(name, "none").lower() != "none":
            word = {"proxyjump": "ProxyJump", "proxycommand": "ProxyCommand"}[name]
            why = f"is behind a {word}: name it in a YAML inventory, by its alias in your own ssh configuration"
            return SkippedEntry(alias, why, line)
    address = settings.get("hostname", alias).replace("%h", alias)
    key = settings.get("identityfile", "none").replace("%d", "~")
    for what, text in (("HostName", address), ("IdentityFile", key)):
        if "%" in text.replace("%%", ""):
            return SkippedEntry(alias, f"has a {what} that only ssh can write out ({show(text)})", line)
    return ListedHost(
        address=address,
        name=alias,
        line=line,
        user=settings.get("user"),
        port=settings.get("port"),
        platform=UNKNOWN_PLATFORM,
        key=None if key.lower() == "none" else key.replace("%%", "%"),
    )


def _blocks(text: str) -> tuple[list[_HostBlock], list[SkippedEntry]]:
    """Return the entries in order; lines before the first entry apply to all hosts."""
    blocks, skipped = [_HostBlock(("*",), 0)], []
    asleep = False
    for line, row in enumerate(text.splitlines(), 1):
        keyword, value = _split(row, line)
        if keyword == "host":
            patterns = tuple(_words(value, line))
            if not patterns:
                raise MalformedInventory(line, "Host names nothing")
            blocks.append(_HostBlock(patterns[:_MOST_PATTERNS], line))
            asleep = False
        elif keyword == "match":
            everyone = value.lower() in ("all", "final all")
            if not everyone:
                skipped.append(
                    SkippedEntry(
                        f"Match {value}"[:80], "cannot be decided without ssh; its settings are not used", line
                    )
                )
            blocks += [_HostBlock(("*",), line)] * everyone
            asleep = not everyone
        elif keyword == "include":
            skipped.append(SkippedEntry(f"Include {value}"[:80], "is not followed; give that file instead", line))
        elif keyword in _WANTED and not asleep:
            words = [value] if keyword == "proxycommand" else list(_words(value, line))
            if not words:
                raise MalformedInventory(line, f"{row.split()[0]} has no value")
            blocks[-1].settings.setdefault(keyword, words[0])
    return blocks, skipped


def _split(row: str, line: int) -> tuple[str, str]:
    """Split a row into `keyword` and the rest, separated by blanks or `=`."""
    text = row.strip()
    if not text or text.startswith("#"):
        return "", ""
    found = re.match(r"([A-Za-z0-9]+)(?:\s*=\s*|\s+|$)(.*)", text)
    if not found:
        raise MalformedInventory(line, f"{show(text)} is no keyword with a value")
    return found[1].lower(), found[2]


def _words(value: str, line: int) -> Iterator[str]:
    try:
        yield from shlex.split(value, comments=True)
    except ValueError:
        raise MalformedInventory(line, f"{show(value)} has a quotation mark that is not closed") from None


def _plain(pattern: str) -> bool:
    return not set(pattern) & set("*?!")


def _fits(alias: str, pattern: str) -> bool:
    """Match with `*` and `?` only, as ssh does."""
    return alias == pattern if _plain(pattern) else fnmatchcase(alias, pattern.replace("[", "[[]"))
