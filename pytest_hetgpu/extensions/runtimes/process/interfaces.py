"""The interfaces of this machine, as the kernel reports them to this process's network namespace."""

from __future__ import annotations

import contextlib
import ipaddress
from pathlib import Path

from pytest_hetgpu.extensions.runtimes.process.interface_names import kind_of
from pytest_hetgpu.model.interfaces import ROUTES, Interface, Network

_SYSFS = Path("/sys/class/net")
_ETHERNET, _INFINIBAND = "1", "32"  # ARPHRD_* of linux/if_arp.h


def network_here(sysfs: Path = _SYSFS) -> Network | None:
    """Read the interfaces and routes of this machine; None if the kernel does not report them.

    State and addresses come from system calls: /sys may belong to another network namespace than this process.
    """
    import psutil

    try:
        states, addresses = psutil.net_if_stats(), psutil.net_if_addrs()
    except OSError:
        return None
    found = []
    for name, state in states.items():
        held = [one.address for one in addresses.get(name, ()) if one.family.name == "AF_INET"]
        flags = getattr(state, "flags", "").split(",")
        kind = "loopback" if "loopback" in flags else _kind(sysfs / name, flags)
        found.append(Interface(name, state.isup, any(map(_routable, held)), kind))
    routes = ""
    with contextlib.suppress(OSError):
        routes = Path(ROUTES).read_text(encoding="ascii", errors="replace")
    return Network(tuple(found), routes)


def _kind(folder: Path, flags: list[str]) -> str:
    """Recognise a bridge or a tunnel by sysfs and flags, else by its name."""
    if (folder / "bridge").is_dir():
        return "bridge"
    try:
        link = (folder / "type").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        link = ""
    if (folder / "tun_flags").exists() or "pointopoint" in flags or link not in ("", _ETHERNET, _INFINIBAND):
        return "tunnel"
    return kind_of(folder.name)


def _routable(address: str) -> bool:
    try:
        return not ipaddress.IPv4Address(address).is_link_local
    except ValueError:
        return False
