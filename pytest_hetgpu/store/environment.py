"""`placements/<name>/environment.json`: what each node of a placement was seen to be, and its part of the summary.

    {"schema": 1, "placement": "mixed",
     "nodes": {"node0": {"hardware": "g4dn", "host": "10.0.0.5",
                         "facts": {"ucx": {"state": "found", "value": "1.18.0", "why": ""}, ...}}, ...},
     "skew": [{"fact": "ucx", "node0": "1.18.0", "node1": "1.20.1"}, ...],
     "wire": {"limit": {"gbs": 1.17, "source": "pump 1, 4 streams", "between": ["node1", "node0"], ...},
              "pairs": [...], "rated": [...], "seconds": 1.7}}

A fact's `state` is found, absent or unknown; its `value` a text or a list of texts, null where nothing was found. In
`skew` `-` stands for what is absent and `?` for what is unknown. `wire` is there once somebody has measured it
(`model/bandwidth.py`); of a run that looks at no node it is all there is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_hetgpu.model.bandwidth import LinkReport
from pytest_hetgpu.model.facts import Environment, Fact, FactState, SkewRow, skew
from pytest_hetgpu.store.encode import RecordError, from_json, to_json
from pytest_hetgpu.store.files import PRIVATE, make_folder, write_atomically
from pytest_hetgpu.store.folder import LONGEST_NAME
from pytest_hetgpu.store.redaction.redact import redact_json

SCHEMA = 1
# What is worth a line of the summary also where it is the same everywhere.
TELLING = (
    "os",
    "kernel",
    "container",
    "cuda.arch",
    "cuda.driver",
    "rocm.arch",
    "rocm.version",
    "openmpi",
    "mpich",
    "ucx",
    "ucx.enable_mt",
    "ucc",
    "libfabric",
    "nccl",
    "rccl",
    "torch",
    "mpi4py",
)


@dataclass(frozen=True, slots=True)
class SeenNode:
    """One node: its kind of hardware, its host, and what was seen of it."""

    hardware: str
    host: str
    environment: Environment


@dataclass(frozen=True, slots=True)
class SeenPlacement:
    """A placement's nodes by name (`node0`, `node1`, ..., `launcher`), in the order of their ranks; what is between."""

    name: str
    nodes: Mapping[str, SeenNode]
    wire: LinkReport | None = None

    @property
    def skew(self) -> tuple[SkewRow, ...]:
        """What differs between the nodes, a value for each."""
        return skew({name: node.environment for name, node in self.nodes.items()})


def path_of(run: Path, placement: str) -> Path:
    """Where a placement's file lies in a run's folder: always below `placements/`, whatever its name."""
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", placement)[:LONGEST_NAME]
    return run / "placements" / (name if name.strip(".") else f"_{name}") / "environment.json"


def write(run: Path, placement: SeenPlacement) -> Path:
    """Keeps what was seen, redacted, in a file that only its owner may read; it is seen in full or not at all.

    What the file says of the wire stays, if the placement says nothing of it. Two who write must not do it at once: who
    looks at nodes, or measures between them, holds their leases.
    """
    path = path_of(run, placement.name)
    placement = replace(placement, wire=placement.wire or wire_of(run, placement.name))
    make_folder(path.parent, below=run)
    write_atomically(path, f"{json.dumps(_to_json(placement), indent=1)}\n".encode("ascii"), PRIVATE)
    return path


def read(path: Path) -> SeenPlacement:
    """What `write` kept. Raises RecordError, naming the file, where it cannot be read."""
    try:
        data = json.loads(path.read_bytes())
        if data["schema"] > SCHEMA:
            raise RecordError(f"{path}: written by a newer version (schema {data['schema']}, known: {SCHEMA})")
        nodes = {str(name): _node(one) for name, one in data["nodes"].items()}
        return SeenPlacement(str(data["placement"]), nodes, _wire(data))
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path}: not the environment of a placement ({type(error).__name__}: {error})") from None


def wire_of(run: Path, placement: str) -> LinkReport | None:
    """What the run knows of a placement's wire so far; None where nobody measured it, or it cannot be read."""
    try:
        return read(path_of(run, placement)).wire
    except RecordError:
        return None


def keep_wire(run: Path, placement: str, report: LinkReport) -> None:
    """Adds what was found between the nodes to what was seen of them."""
    try:
        seen = read(path_of(run, placement))
    except RecordError:
        seen = SeenPlacement(placement, {})
    write(run, replace(seen, wire=report))


def read_all(run: Path) -> tuple[SeenPlacement, ...]:
    """Every placement that a run looked at, by name; a file that cannot be read is passed over."""
    found = []
    for path in sorted(run.glob("placements/*/environment.json")):
        try:
            found.append(read(path))
        except RecordError:
            continue
    return tuple(found)


def _to_json(placement: SeenPlacement) -> dict[str, Any]:
    nodes = {
        name: {
            "hardware": node.hardware,
            "host": node.host,
            "facts": facts_json(node.environment),
        }
        for name, node in placement.nodes.items()
    }
    rows = [{"fact": row.fact, **dict(zip(placement.nodes, row.values, strict=True))} for row in placement.skew]
    wire = {"wire": redact_json(to_json(placement.wire))} if placement.wire else {}
    return {"schema": SCHEMA, "placement": placement.name, "nodes": nodes, "skew": redact_json(rows), **wire}


def facts_json(environment: Environment) -> dict[str, Any]:
    """Facts by name as JSON has them, without secrets."""
    return {name: _fact(name, fact) for name, fact in environment.facts.items()}


def _fact(name: str, fact: Fact) -> dict[str, Any]:
    """A fact with its secrets out; one that is a variable is redacted by that variable's name too."""
    value = list(fact.value) if isinstance(fact.value, tuple) else fact.value
    if name.startswith("env.") and isinstance(value, str):
        value = redact_json({"env": {name.removeprefix("env."): value}})["env"][name.removeprefix("env.")]
    return {"state": fact.state.value, "value": redact_json(value), "why": redact_json(fact.why)}


def _node(data: Mapping[str, Any]) -> SeenNode:
    facts = {str(name): _read_fact(one) for name, one in data["facts"].items()}
    return SeenNode(str(data["hardware"]), str(data["host"]), Environment(facts))


def _wire(data: Mapping[str, Any]) -> LinkReport | None:
    try:
        return from_json(LinkReport, data["wire"]) if "wire" in data else None
    except RecordError as error:
        raise ValueError(error) from None


def _read_fact(data: Mapping[str, Any]) -> Fact:
    value = data["value"]
    kept = tuple(map(str, value)) if isinstance(value, list) else None if value is None else str(value)
    return Fact(FactState(data["state"]), kept, str(data.get("why", "")))
