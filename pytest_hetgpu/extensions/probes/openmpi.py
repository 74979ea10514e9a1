"""Open MPI: its version and the components it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first, or_absent
from pytest_hetgpu.model.facts import Facts, absent, found, unknown

_FRAMEWORKS = ("pml", "btl", "mtl", "coll", "accelerator")
_COMPONENT = re.compile(rf"mca_({'|'.join(_FRAMEWORKS)})_(\w+?)(?:_component|\.so)")
# Module folders relative to libmpi: upstream, and Debian.
_MODULES = ("openmpi", "openmpi/lib/openmpi3", "openmpi/lib/openmpi")


class OpenMpiProbe(Probe):
    """A probe by `ompi_info --version`, and by component names in libmpi, libopen-pal and the modules beside them.

    A full `ompi_info` would open every module, which takes a quarter of a second.
    """

    title = "Open MPI"
    commands = {"ompi_info": ("ompi_info", "--version")}
    paths = tuple(f"{{lib}}/{folder}/mca_*.so" for folder in _MODULES)
    strings = {
        "openmpi": {
            "paths": ["{lib}/libmpi.so.40", "{lib}/libopen-pal.so.[48]0"],
            "pattern": rf"(?<=\x00)mca_(?:{'|'.join(_FRAMEWORKS)})_\w+?_component(?=\x00)",
        }
    }
    provides = ("openmpi", "openmpi.library", *(f"openmpi.{framework}" for framework in _FRAMEWORKS))

    def read(self, raw: RawFacts) -> Facts:
        result, library = raw.command("ompi_info"), next(iter(raw.strings.get("openmpi", {})), None)
        if result.missing and not library:
            return dict.fromkeys(self.provides, absent("neither ompi_info nor its library"))
        version = first(r"^Open MPI v?(\d\S*)", result.out)
        facts = {
            "openmpi": found(version) if version else unknown(f"ompi_info: {result.error}"),
            "openmpi.library": or_absent(library, "no libmpi.so.40 in the loader's folders"),
        }
        has = dict.fromkeys(self._components(raw, library)) if library else {}
        if not has:
            return {**dict.fromkeys(self.provides, unknown("its library names no component")), **facts}
        for framework in _FRAMEWORKS:
            names = tuple(sorted(name for kind, name in has if kind == framework))
            facts[f"openmpi.{framework}"] = or_absent(names, "no component of this kind")
        return facts

    @staticmethod
    def _components(raw: RawFacts, library: str) -> Iterator[tuple[str, str]]:
        home = PurePosixPath(library).parent
        folders = {str(home / folder) for folder in _MODULES}
        modules = (path for path in raw.existing("*/mca_*.so") if str(PurePosixPath(path).parent) in folders)
        texts = (text for path, names in raw.strings["openmpi"].items() for text in names if _beside(path, home))
        for text in (*texts, *modules):
            match = _COMPONENT.search(text)
            if match and match[2] not in ("base", "base_selected"):
                yield match[1], match[2]


def _beside(path: str, folder: PurePosixPath) -> bool:
    return PurePosixPath(path).parent == folder
