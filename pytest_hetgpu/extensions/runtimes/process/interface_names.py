"""The kind of an interface by its name: engines, virtual machines and VPNs use names of their own. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pytest_hetgpu.model.interfaces import LOOPBACK

_BRIDGES = ("docker*", "br-*", "virbr*", "cni*", "flannel*", "podman*", "lxcbr*", "lxdbr*", "cbr*")
_TUNNELS = ("tun*", "tap*", "wg*", "ppp*", "tailscale*", "zt*", "utun*", "vxlan*", "tunl*", "gre*", "sit*", "ip6tnl*")


def kind_of(name: str) -> str:
    """Recognise a bridge or a tunnel by the name that engines and VPNs give it; return "" for any other interface."""
    if name == LOOPBACK:
        return "loopback"
    for kind, globs in {"bridge": _BRIDGES, "tunnel": _TUNNELS}.items():
        if any(fnmatchcase(name, glob) for glob in globs):
            return kind
    return ""
