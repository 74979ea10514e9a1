"""Finds the GID index that a RoCE job must name on its machine. Stdlib only, Python 3.6+.

    python3 gid_index.py HCA NETDEV                         prints the index
    python3 gid_index.py HCA NETDEV PROGRAM [ARGUMENT...]   runs a program with NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX

`-` in place of HCA (`mlx5_0`, `mlx5_0:2`) or NETDEV takes any. The found HCA is then passed to the program, too
(NCCL_IB_HCA, UCX_NET_DEVICES). Variables that are already set stay.

The index is that of the first GID, by HCA, port and index, on an active Ethernet port. Its type must be RoCE v2, and it
must map an IPv4 address. (Source: EPFL RCP, "Using RDMA for efficient inter-node communication".) A link-local address
(169.254.0.0/16) counts only if there is no other. If no GID fits, the program runs without the variables.
"""

import ipaddress
import os
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional

SYSFS = "/sys/class/infiniband"


class GidRow(NamedTuple):
    """A matching row of a GID table."""

    link_local: bool
    hca: str
    port: int
    index: int


def main(argv: List[str], sysfs: str = SYSFS) -> int:
    """Print the index, or replace this process with the program."""
    if len(argv) < 2:
        print("usage: gid_index.py HCA|- NETDEV|- [PROGRAM ARGUMENT...]", file=sys.stderr)
        return 2
    hca, netdev = ("" if word == "-" else word for word in argv[:2])
    found = find(Path(sysfs), hca, netdev)
    if found is None:
        where = "".join((" of " + hca if hca else "", " on " + netdev if netdev else ""))
        print(f"gid_index.py: no GID{where} in {sysfs} is of type RoCE v2 and maps an IPv4 address", file=sys.stderr)
    if len(argv) == 2:
        if found:
            print(found.index)
        return 0 if found else 1
    environment = {**(variables(found, named=bool(hca)) if found else {}), **os.environ}
    return os.execvpe(argv[2], argv[2:], environment)


def variables(found: GidRow, named: bool) -> Dict[str, str]:
    """Return the variables for NCCL and UCX; those of the HCA only if it was not `named`."""
    index = str(found.index)
    settings = {"NCCL_IB_GID_INDEX": index, "UCX_IB_GID_INDEX": index}
    if not named:
        settings["NCCL_IB_HCA"] = found.hca if found.port == 1 else f"{found.hca}:{found.port}"
        settings["UCX_NET_DEVICES"] = f"{found.hca}:{found.port}"
    return settings


def find(sysfs: Path, hca: str, netdev: str) -> Optional[GidRow]:
    """Return the row to name; None if none fits."""
    device, _, port = hca.partition(":")
    return min(_rows(sysfs, device, port, netdev), default=None)


def _rows(sysfs: Path, device: str, port: str, netdev: str) -> Iterator[GidRow]:
    for folder in sysfs.glob(f"{device or '*'}/ports/{port or '*'}"):
        if _text(folder / "link_layer") != "Ethernet" or "ACTIVE" not in _text(folder / "state"):
            continue
        for file in (folder / "gids").glob("*"):
            attributes = folder / "gid_attrs"
            address = _ipv4(_text(file))
            if address is None or _text(attributes / "types" / file.name) != "RoCE v2":
                continue
            if netdev and _text(attributes / "ndevs" / file.name) != netdev:
                continue
            yield GidRow(address.is_link_local, folder.parent.parent.name, int(folder.name), int(file.name))


def _ipv4(gid: str) -> Optional[ipaddress.IPv4Address]:
    try:
        return ipaddress.IPv6Address(gid).ipv4_mapped
    except ValueError:
        return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # an index without a GID has no attributes that can be read
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
