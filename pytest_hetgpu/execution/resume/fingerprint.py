"""The inputs that the verdicts of a run depend on, as texts by name, and their differences.

Files count by content, not by path. A name that starts with `variable ` is a setting of an MPI or GPU library that
ranks inherit from the environment of pytest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_hetgpu._version import __version__
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.registry import shipped
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.model.credentials import is_secret_name
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.store.encode import to_json
from pytest_hetgpu.store.files import read_input
from pytest_hetgpu.store.redaction.redact import redact_json
from pytest_hetgpu.store.redaction.rules import REDACTED

_INHERITED = re.compile(
    r"(?:UCX|UCC|NCCL|RCCL|GLOO|FI|MPIR_CVAR|MPICH|I_MPI|HIP|ROCR|HSA|CUDA|OMP)_|(?:OMPI|PMIX|PRTE)_MCA_|"
    r"LD_LIBRARY_PATH$|LD_PRELOAD$"
)
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
_NOTHING = "not there"


def compute(
    suite: MatrixSet, tests: Iterable[str], options: Mapping[str, str], environ: Mapping[str, str]
) -> Mapping[str, str]:
    """Return versions, files, images, stacks, the `options` that count, and variables; redacted.

    `tests` are files or folders of tests from the command line. Only the name of a folder counts.
    """
    found: dict[str, Any] = {"pytest-hetgpu": __version__}
    for matrix in suite.matrices.values():
        found[f"matrix {matrix.name}"] = f"sha256 {matrix.sha256}"
    if suite.inventory.given:
        found["inventory"] = _hosts(suite.inventory)
    for file in suite.knowledge_files:
        found[f"known failures {file.name}"] = _content(file)
    for file in suite.signature_files:
        found[f"signatures {file.name}"] = _content(file)
    for test in tests:
        found[f"tests {test}"] = _content(Path(test)) if Path(test).is_file() else "a folder"
    for kind, image in suite.images():
        found[f"image of {kind}"] = image.reference
    for name in suite.stack_names():
        stack = suite.stack(name)
        if isinstance(stack, NotHere):
            found[f"stack {name}"] = "not here"
        else:
            found[f"stack {name}"] = f"{stack.vendor} {stack.version} in {stack.prefix}"
    found |= options
    inherited = ((name, value) for name, value in environ.items() if _INHERITED.match(name))
    found |= {f"variable {name}": REDACTED if is_secret_name(name) else value for name, value in inherited}
    told: dict[str, str] = redact_json(found)
    return told


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each name with another text: `stack openmpi-5: was ..., is ...`."""
    for name in dict.fromkeys((*before, *now)):
        was, told = before.get(name, _NOTHING), now.get(name, _NOTHING)
        if was != told:
            yield f"{name}: was {_short(was)}, is {_short(told)}"


def _short(text: str) -> str:
    return _DIGEST.sub(r"\1", text) or "empty"


def _hosts(inventory: Inventory) -> str:
    """Return a digest of an inventory's content: hosts of a source (`slurm:`) are in no file."""
    said: dict[str, object] = {
        "hardware": {name: [to_json(host) for host in hosts] for name, hosts in inventory.hardware.items()},
        "offers": [to_json(host) for host in inventory.configured_hosts],
        "stacks": {name: str(path) for name, path in inventory.stacks.items()},
        "build": {name: shape.model_dump(mode="json") for name, shape in inventory.build.items()},
    }
    # Settings of a runtime stand under its name, as in the file.
    for runtime in filter(_has_sites, shipped("runtimes")):
        said[runtime] = {}
    for runtime, sites in inventory.sites.items():
        said[runtime] = {name: site.model_dump(mode="json") for name, site in sites.items()}
    return f"sha256 {hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()}"


def _has_sites(runtime: str) -> bool:
    return runtime_of(runtime).site_settings is not None


def _content(path: Path) -> str:
    try:
        return f"sha256 {hashlib.sha256(read_input(path)).hexdigest()}"
    except OSError as error:
        return f"unreadable ({error.strerror})"
