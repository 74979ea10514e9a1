"""MPICH: its version and the devices it was built with."""

from __future__ import annotations

from pytest_hetgpu.extensions.probes.base import Probe, Seen, first, or_unknown
from pytest_hetgpu.model.facts import Facts, absent, unknown


class Mpich(Probe):
    """By `mpichversion`; Cray's MPICH, which has none, by `craympich` in the name of its library."""

    title = "MPICH"
    commands = {"mpichversion": ("mpichversion",)}
    strings = {
        "craympich": {
            "paths": ["/opt/cray/pe/lib64/libmpi_*.so*", "{lib}/libmpi_gnu*.so*", "{lib}/libmpi_cray*.so*"],
            "pattern": r"CRAY MPICH version \d+\.\d+\.\d+",
        }
    }
    promises = ("mpich", "mpich.device", "mpich.configure", "craympich")

    def read(self, seen: Seen) -> Facts:
        cray = next((texts[0] for texts in seen.strings.get("craympich", {}).values() if texts), None)
        ran = seen.ran("mpichversion")
        facts = {"craympich": or_unknown(cray.split()[-1], "") if cray else absent("no library of Cray's")}
        if not ran.ok:
            rest = absent("no mpichversion") if ran.missing else unknown(f"mpichversion: {ran.trouble}")
            return {**dict.fromkeys(self.promises[:3], rest), **facts}
        lines = {"mpich": "Version", "mpich.device": "Device", "mpich.configure": "configure"}
        return {
            **{
                name: or_unknown(self._line(word, ran.out), "mpichversion does not tell")
                for name, word in lines.items()
            },
            **facts,
        }

    @staticmethod
    def _line(word: str, text: str) -> str | None:
        return first(rf"^MPICH {word}:\s+(.+)", text)
