"""MPICH: its version and the devices it was built with."""

from __future__ import annotations

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first, or_unknown
from pytest_hetgpu.model.facts import Facts, absent, unknown


class MpichProbe(Probe):
    """By `mpichversion`; Cray's MPICH, which has none, by `craympich` in the name of its library."""

    title = "MPICH"
    commands = {"mpichversion": ("mpichversion",)}
    strings = {
        "craympich": {
            "paths": ["/opt/cray/pe/lib64/libmpi_*.so*", "{lib}/libmpi_gnu*.so*", "{lib}/libmpi_cray*.so*"],
            "pattern": r"CRAY MPICH version \d+\.\d+\.\d+",
        }
    }
    provides = ("mpich", "mpich.device", "mpich.configure", "craympich")

    def read(self, raw: RawFacts) -> Facts:
        cray = next((texts[0] for texts in raw.strings.get("craympich", {}).values() if texts), None)
        result = raw.command("mpichversion")
        facts = {"craympich": or_unknown(cray.split()[-1], "") if cray else absent("no library of Cray's")}
        if not result.ok:
            rest = absent("no mpichversion") if result.missing else unknown(f"mpichversion: {result.error}")
            return {**dict.fromkeys(self.provides[:3], rest), **facts}
        lines = {"mpich": "Version", "mpich.device": "Device", "mpich.configure": "configure"}
        return {
            **{
                name: or_unknown(self._line(word, result.out), "mpichversion does not report it")
                for name, word in lines.items()
            },
            **facts,
        }

    @staticmethod
    def _line(word: str, text: str) -> str | None:
        return first(rf"^MPICH {word}:\s+(.+)", text)
