"""NCCL and RCCL: their versions, and the network plugins that they would load."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first, or_absent
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

_NUMBERS = ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")
# A wheel of PyTorch contains its own: NCCL as the package nvidia-nccl-cuXX, RCCL inside torch/lib.
_NCCL = ("{lib}/libnccl.so.2", "{site}/nvidia/nccl/lib/libnccl.so.2")
_RCCL = ("{lib}/librccl.so.1", "{site}/torch/lib/librccl.so*")


class NcclProbe(Probe):
    """A probe by file names, headers and packages: loading these libraries would take seconds.

    A plugin is libnccl-net.so or libnccl-net-NAME.so in the loader's folders (NCCL_NET_PLUGIN). RCCL also loads
    librccl-net.so.
    """

    title = "NCCL and RCCL"
    paths = (*_NCCL, *_RCCL, "{lib}/libnccl-net*.so*", "{lib}/librccl-net*.so*", "{lib}/librccl-anp*.so*")
    files = (
        "/usr/include/nccl.h",
        "/usr/local/cuda/include/nccl.h",
        "/opt/rocm/include/rccl/rccl.h",
        "/usr/include/rccl/rccl.h",
        "{site}/nvidia_nccl_cu*.dist-info/METADATA",
    )
    env = ("NCCL_NET_PLUGIN", "NCCL_NET", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME")
    provides = ("nccl", "nccl.library", "nccl.plugins", "rccl", "rccl.library", "rccl.plugins")

    def read(self, raw: RawFacts) -> Facts:
        nccl, rccl = (tuple(raw.existing(f"*/lib{name}.so*")) for name in ("nccl", "rccl"))
        packaged = next((first(r"^Version: (\S+)", text) for _, text in raw.texts(r".*/nvidia_nccl_cu.*")), None)
        nccl_headers = (text for match, text in raw.texts(r".*/nccl\.h"))
        rccl_headers = (text for match, text in raw.texts(r".*/rccl\.h"))
        return {
            **self._library("nccl", nccl, self._from_name(raw, nccl) or packaged or self._from(nccl_headers)),
            "nccl.plugins": self._plugins(raw, "nccl-net"),
            **self._library("rccl", rccl, self._from(rccl_headers) or self._from_name(raw, rccl)),
            "rccl.plugins": self._plugins(raw, "nccl-net", "rccl-net", "rccl-anp"),
        }

    @staticmethod
    def _library(name: str, paths: tuple[str, ...], version: str | None) -> Facts:
        if not paths:
            return {name: absent(f"no lib{name} in the loader's folders"), f"{name}.library": absent()}
        version_fact = (
            found(version) if version else unknown(f"neither the name of {paths[0]} nor a header has its version")
        )
        return {name: version_fact, f"{name}.library": found(paths[0])}

    @staticmethod
    def _from_name(raw: RawFacts, paths: tuple[str, ...]) -> str | None:
        """Return the version in a file name: NCCL in `libnccl.so.2.21.5`, ROCm in `librccl.so.1.0.60202`."""
        names = (PurePosixPath(raw.paths[path].real).name for path in paths)
        versions = (first(r"\.so\.(\d+\.\d+\.\d+)$", name) for name in names)
        return next(filter(None, versions), None)

    @staticmethod
    def _from(headers: Iterable[str]) -> str | None:
        for text in headers:
            numbers = [first(rf"^#define {name}\s+(\d+)", text) for name in _NUMBERS]
            if all(numbers):
                return ".".join(filter(None, numbers))
        return None

    @staticmethod
    def _plugins(raw: RawFacts, *names: str) -> Fact:
        paths = (path for name in names for path in raw.existing(f"*/lib{name}*.so*"))
        return or_absent(tuple(dict.fromkeys(paths)), "no network plugin in the loader's folders")
