"""Network interfaces: state, reported speed and packet size."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, or_unknown
from pytest_hetgpu.model.facts import Facts, absent, found, unknown

_NET = "/sys/class/net"
# Ends of containers' veth pairs, and queues. No job uses them by these names.
_NOT_OURS = ("veth", "ifb")
_DEVTYPE = re.compile(r"^DEVTYPE=(\w+)$", re.MULTILINE)
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8  # linux/if.h


class NicsProbe(Probe):
    """A probe by sysfs. `nics` are the interfaces that are up, without loopback and the ends of containers' veth pairs.

    MTU in bytes, speed in Mbit/s. `kind` is the kernel's DEVTYPE (bridge, bond, vlan, ...) if there is one, or tun.
    """

    title = "Network interfaces"
    files = tuple(f"{_NET}/*/{name}" for name in ("flags", "mtu", "speed", "operstate", "uevent"))
    paths = (f"{_NET}/*", f"{_NET}/*/device/driver", f"{_NET}/*/tun_flags")
    provides = ("nics",)

    def read(self, raw: RawFacts) -> Facts:
        up = (match[1] for match, text in raw.texts(rf"{_NET}/([^/]+)/flags") if self._counts(text))
        names = [name for name in up if not name.startswith(_NOT_OURS)]
        if not names:
            there = any(path.startswith(f"{_NET}/") for path in raw.paths)
            return {"nics": absent("none is up") if there else unknown(f"{_NET} is not to be seen")}
        facts: Facts = {"nics": found(tuple(names))}
        for name in names:
            facts |= {f"nics.{name}.{key}": fact for key, fact in self._one(raw, f"{_NET}/{name}").items()}
        return facts

    @staticmethod
    def _counts(flags: str) -> bool:
        try:
            number = int(flags, 16)
        except ValueError:
            return False
        return bool(number & _IFF_UP) and not number & _IFF_LOOPBACK

    @staticmethod
    def _one(raw: RawFacts, folder: str) -> Facts:
        speed = raw.text(f"{folder}/speed")
        known = speed if speed and speed.isdecimal() and int(speed) > 0 else None
        driver = raw.paths.get(f"{folder}/device/driver")
        kind = _DEVTYPE.search(raw.text(f"{folder}/uevent") or "")
        name = kind[1] if kind else "tun" if f"{folder}/tun_flags" in raw.paths else ""
        return {
            **({"kind": found(name)} if name else {}),
            "mtu": or_unknown(raw.text(f"{folder}/mtu"), "sysfs does not report it"),
            "speed": or_unknown(known, "the driver does not report it"),
            "driver": found(PurePosixPath(driver.real).name) if driver else absent("no device behind it"),
            "state": or_unknown(raw.text(f"{folder}/operstate"), "sysfs does not report it"),
        }
