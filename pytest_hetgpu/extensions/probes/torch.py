"""PyTorch: its version, its platform, and its built-in backends of torch.distributed."""

from __future__ import annotations

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts, first
from pytest_hetgpu.model.facts import Fact, Facts, absent, found, unknown

_BACKENDS = {"ProcessGroupGloo": "gloo", "ProcessGroupNCCL": "nccl", "ProcessGroupMPI": "mpi", "ProcessGroupUCC": "ucc"}


class TorchProbe(Probe):
    """A probe by files: importing PyTorch takes seconds.

    torch/version.py holds the versions. libtorch_python contains the class name of each built-in backend between zero
    bytes (torch/csrc/distributed/c10d/init.cpp binds each under its own #ifdef).
    """

    title = "PyTorch"
    files = ("{site}/torch/version.py",)
    strings = {
        "torch": {
            "paths": ["{site}/torch/lib/libtorch_python.so"],
            "pattern": r"(?<=\x00)ProcessGroup(?:Gloo|NCCL|MPI|UCC)(?=\x00)",
        }
    }
    provides = ("torch", "torch.cuda", "torch.hip", "torch.backends")

    def read(self, raw: RawFacts) -> Facts:
        path, text = next(((match[0], text) for match, text in raw.texts(r".*/torch/version\.py")), ("", None))
        if text is None:
            return dict.fromkeys(self.provides, absent("not among the Python packages"))
        version = first(r"^__version__ *= *['\"]([^'\"]+)", text)
        return {
            "torch": found(version, path) if version else unknown(f"{path} does not state it"),
            "torch.cuda": self._built_for("cuda", text),
            "torch.hip": self._built_for("hip", text),
            "torch.backends": self._backends(raw),
        }

    @staticmethod
    def _built_for(name: str, text: str) -> Fact:
        said = first(rf"^{name}\b[^=\n]*= *(.+)", text)
        if said is None:
            return unknown("torch/version.py does not state it")
        return absent("built without") if said == "None" else found(said.strip("'\""))

    @staticmethod
    def _backends(raw: RawFacts) -> Fact:
        names = next(iter(raw.strings.get("torch", {}).values()), None)
        if names is None:
            return unknown("libtorch_python cannot be read")
        built = tuple(backend for name, backend in _BACKENDS.items() if name in names)
        return found(built) if built else absent("built without torch.distributed")
