"""RDMA devices: InfiniBand and RoCE with GID tables, Slingshot's CXI; which HCA and GID a RoCE job must name."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, or_unknown
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

_IB = "/sys/class/infiniband"
_PORT = f"{_IB}/([^/]+)/ports/(\\d+)"
_GIDS = re.compile(r"rdma\.(.+):(\d+)\.gids")
_ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
_ROCE_V2 = "RoCE v2"


class GidEntry(NamedTuple):
    """A row of a port's GID table; `type` is `RoCE v2`, `IB/RoCE v1`, or empty if sysfs has none."""

    hca: str
    port: int
    row: int
    gid: str
    type: str
    netdev: str
    active: bool

    @property
    def ipv4(self) -> str | None:
        """Return the address that the GID maps (`::ffff:10.0.0.5`), None for one of IPv6."""
        try:
            mapped = ipaddress.IPv6Address(self.gid).ipv4_mapped
        except ValueError:
            return None
        return str(mapped) if mapped else None

    def __str__(self) -> str:
        """Format a row of the fact `rdma.HCA:PORT.gids`: index, GID, interface, type."""
        return f"{self.row} {self.ipv4 or self.gid} {self.netdev or '-'} {self.type or '-'}"


class GidChoice(NamedTuple):
    """The GID for a RoCE job, with the reason: values of `NCCL_IB_HCA`, `NCCL_IB_GID_INDEX` and `UCX_NET_DEVICES`."""

    hca: str
    port: int
    gid_index: int
    netdev: str
    why: str


def gids(raw: RawFacts) -> tuple[GidEntry, ...]:
    """Return every row of every non-empty GID table, by HCA, port and index."""
    return tuple(sorted(_rows(raw), key=lambda row: row[:3]))


def table(facts: Mapping[str, Fact]) -> tuple[GidEntry, ...]:
    """Return the GID rows in a node's facts, as `gids` found them."""
    rows = []
    for name, fact in facts.items():
        match = _GIDS.fullmatch(name)
        for row in fact.items if match else ():
            assert match
            index, gid, netdev, kind = row.split(" ", 3)
            mapped = gid if ":" in gid else f"::ffff:{gid}"
            state = facts.get(name.replace(".gids", ".state"), absent()).text or ""
            kind, netdev = ("" if word == "-" else word for word in (kind, netdev))
            rows.append(GidEntry(match[1], int(match[2]), int(index), mapped, kind, netdev, "ACTIVE" in state))
    return tuple(sorted(rows, key=lambda row: row[:3]))


def _rows(raw: RawFacts) -> Iterator[GidEntry]:
    for match, gid in raw.texts(rf"{_PORT}/gids/(\d+)"):
        if gid == _ZERO:
            continue
        hca, port, index = match[1], match[2], match[3]
        folder = f"{_IB}/{hca}/ports/{port}"
        kind, netdev = (raw.text(f"{folder}/gid_attrs/{name}/{index}") or "" for name in ("types", "ndevs"))
        active = "ACTIVE" in (raw.text(f"{folder}/state") or "")
        yield GidEntry(hca, int(port), int(index), gid, kind, netdev, active)


def choose(rows: tuple[GidEntry, ...], netdev: str | None = None, hca: str | None = None) -> GidChoice | str:
    """Choose the HCA and GID index with RoCE v2 over IPv4 on an active port; or return the unmet condition as text.

    Rule: the GID's type is RoCE v2 and it maps an IPv4 address (EPFL RCP, "Using RDMA for efficient inter-node
    communication"). The first by HCA, port and index wins. A wanted `netdev` or `hca` (`mlx5_0`, `mlx5_0:2`) restricts
    the choice. A link-local address (169.254.0.0/16) is taken only if there is no other.
    """
    if not rows:
        return "there is no GID: no RDMA device has an address"
    device, _, port = (hca or "").partition(":")
    here = tuple(
        row
        for row in rows
        if (not netdev or row.netdev == netdev)
        and (not device or row.hca == device)
        and (not port or str(row.port) == port)
    )
    where = f" of {hca}" * bool(hca) + f" on {netdev}" * bool(netdev)
    if not here:
        netdevs = ", ".join(sorted({row.netdev for row in rows if row.netdev})) or "none"
        return f"no GID{where} (HCAs: {', '.join(sorted({row.hca for row in rows}))}; their interfaces: {netdevs})"
    active = tuple(row for row in here if row.active)
    if not active:
        return f"no port{where} is active"
    v2 = tuple(row for row in active if row.type == _ROCE_V2)
    if not v2:
        kinds = ", ".join(sorted({row.type or "unknown" for row in active}))
        return f"no GID{where} is of type RoCE v2 (found: {kinds})"
    mapped = tuple(row for row in v2 if row.ipv4)
    if not mapped:
        return f"no RoCE v2 GID{where} maps an IPv4 address (its interface has none)"
    ordered = sorted(mapped, key=lambda row: (str(row.ipv4).startswith("169.254."), row.hca, row.port, row.row))
    best = ordered[0]
    why = "the only one" if len(mapped) == 1 else f"the first of {len(mapped)} by HCA, port and index"
    return GidChoice(best.hca, best.port, best.row, best.netdev, why)


class RdmaProbe(Probe):
    """A probe by sysfs. `rdma.roce` is the choice for a RoCE job: `mlx5_0:1 gid 3 (ens5)`."""

    title = "RDMA"
    files = (
        *(f"{_IB}/*/{name}" for name in ("fw_ver", "board_id", "hca_type")),
        *(f"{_IB}/*/ports/*/{name}" for name in ("state", "link_layer", "rate")),
        f"{_IB}/*/ports/*/gids/*",
        f"{_IB}/*/ports/*/gid_attrs/types/*",
        f"{_IB}/*/ports/*/gid_attrs/ndevs/*",
    )
    skip = (_ZERO,)
    paths = (f"{_IB}/*", "/sys/class/cxi/*", "/dev/cxi*", "/sys/class/infiniband_verbs/uverbs*")
    provides = ("rdma", "rdma.roce", "cxi")

    def read(self, raw: RawFacts) -> Facts:
        hcas = tuple(path.rpartition("/")[2] for path in raw.existing(f"{_IB}/*"))
        cxi = tuple(path.rpartition("/")[2] for path in raw.existing("/sys/class/cxi/*") or raw.existing("/dev/cxi*"))
        facts: Facts = {
            "rdma": found(hcas) if hcas else absent(f"nothing in {_IB}"),
            "rdma.roce": self._roce(raw, hcas),
            "cxi": found(cxi) if cxi else absent("no device of Slingshot's"),
        }
        table = gids(raw)
        for match, _ in raw.texts(rf"{_PORT}/state"):
            facts |= self._port(raw, match[1], match[2], table)
        return facts

    @staticmethod
    def _roce(raw: RawFacts, hcas: tuple[str, ...]) -> Fact:
        if not hcas:
            return absent("no RDMA device")
        layers = {text for _, text in raw.texts(rf"{_PORT}/link_layer")}
        if "Ethernet" not in layers:
            return absent("no port is Ethernet") if layers else unknown("sysfs does not report the type of its ports")
        ethernet = {match[1] for match, text in raw.texts(rf"{_PORT}/link_layer") if text == "Ethernet"}
        picked = choose(tuple(row for row in gids(raw) if row.hca in ethernet))
        if isinstance(picked, str):
            return absent(picked)
        return found(f"{picked.hca}:{picked.port} gid {picked.gid_index} ({picked.netdev or '?'})", picked.why)

    @staticmethod
    def _port(raw: RawFacts, hca: str, port: str, table: tuple[GidEntry, ...]) -> Facts:
        folder, name = f"{_IB}/{hca}/ports/{port}", f"rdma.{hca}:{port}"
        rows = tuple(str(row) for row in table if (row.hca, row.port) == (hca, int(port)))
        said = {key: raw.text(f"{folder}/{key}") for key in ("state", "link_layer", "rate")}
        facts = {f"{name}.{key}": or_unknown(text, "sysfs does not report it") for key, text in said.items()}
        firmware = or_unknown(raw.text(f"{_IB}/{hca}/fw_ver"), "sysfs does not report it")
        return {**facts, f"{name}.firmware": firmware, f"{name}.gids": found(rows) if rows else absent("no GID is set")}
