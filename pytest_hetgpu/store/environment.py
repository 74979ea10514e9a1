"""`placements/<name>/environment.json`: the facts of each node of a placement, as stored and in the summary.

    {"schema": 1, "placement": "mixed",
     "nodes": {"node0": {"hardware": "g4dn", "host": "10.0.0.5",
                         "facts": {"ucx": {"state": "found", "value": "1.18.0", "why": ""}, ...}}, ...},
     "skew": [{"fact": "ucx", "node0": "1.18.0", "node1": "1.20.1"}, ...],
     "wire": {"limit": {"gbs": 1.17, "source": "pump 1, 4 streams", "between": ["node1", "node0"], ...},
              "pairs": [...], "rated": [...], "seconds": 1.7}}

The `state` of a fact is found, absent or unknown. Its `value` is a text, a list of texts, or null if nothing was found.
In `skew`, `-` is an absent fact and `?` an unknown one. `wire` is present once the bandwidth was measured
(`model/bandwidth.py`). A run that inspects no node stores `wire` only.
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
from pytest_hetgpu.store.files import PRIVATE, make_folder, read_input, write_atomically
from pytest_hetgpu.store.folder import LONGEST_NAME
from pytest_hetgpu.store.redaction.redact import redact_json

SCHEMA = 1
# Facts with a line in the summary even if all nodes agree.
SUMMARY_FACTS = (
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
class NodeFacts:
    """One node: its hardware kind, its host, and its facts."""

    hardware: str
    host: str
    environment: Environment


@dataclass(frozen=True, slots=True)
class PlacementFacts:
    """The nodes of a placement, and the bandwidth between them.

    Names are `node0`, `node1`, ..., `launcher`, in the order of ranks.
    """

    name: str
    nodes: Mapping[str, NodeFacts]
    link: LinkReport | None = None

    @property
    def skew(self) -> tuple[SkewRow, ...]:
        """The facts that differ between nodes, with one value per node."""
        return skew({name: node.environment for name, node in self.nodes.items()})


def path_of(run: Path, placement: str) -> Path:
    """Return the file of a placement in a run's folder: always below `placements/`, whatever the name."""
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", placement)[:LONGEST_NAME]
    return run / "placements" / (name if name.strip(".") else f"_{name}") / "environment.json"


def write(run: Path, placement: PlacementFacts) -> Path:
    """Store the facts of a placement, redacted, in one atomic write. Only the owner may read the file.

    Keep the stored bandwidth if `placement` has none. Two processes must not write at once: a process that inspects
    nodes, or measures between them, holds their leases.
    """
    path = path_of(run, placement.name)
    placement = replace(placement, link=placement.link or read_link(run, placement.name))
    make_folder(path.parent, below=run)
    write_atomically(path, f"{json.dumps(_placement_json(placement), indent=1)}\n".encode("ascii"), PRIVATE)
    return path


def read(path: Path) -> PlacementFacts:
    """Read a file that `write` stored. Raises RecordError, naming the file, if it cannot be read."""
    try:
        data = json.loads(read_input(path))
        if data["schema"] > SCHEMA:
            raise RecordError(f"{path}: written by a newer version (schema {data['schema']}, known: {SCHEMA})")
        nodes = {str(name): _read_node(one) for name, one in data["nodes"].items()}
        return PlacementFacts(str(data["placement"]), nodes, _decode_link(data))
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path}: not the environment of a placement ({type(error).__name__}: {error})") from None


def read_link(run: Path, placement: str) -> LinkReport | None:
    """Return the stored bandwidth of a placement; None if it was not measured, or cannot be read."""
    try:
        return read(path_of(run, placement)).link
    except RecordError:
        return None


def write_link(run: Path, placement: str, report: LinkReport) -> None:
    """Add the measured bandwidth to the stored facts of a placement."""
    try:
        seen = read(path_of(run, placement))
    except RecordError:
        seen = PlacementFacts(placement, {})
    write(run, replace(seen, link=report))


def read_all(run: Path) -> tuple[PlacementFacts, ...]:
    """Read the facts of every inspected placement, by name; skip files that cannot be read."""
    found = []
    for path in sorted(run.glob("placements/*/environment.json")):
        try:
            found.append(read(path))
        except RecordError:
            continue
    return tuple(found)


def _placement_json(placement: PlacementFacts) -> dict[str, Any]:
    nodes = {
        name: {
            "hardware": node.hardware,
            "host": node.host,
            "facts": facts_json(node.environment),
        }
        for name, node in placement.nodes.items()
    }
    rows = [{"fact": row.fact, **dict(zip(placement.nodes, row.values, strict=True))} for row in placement.skew]
    wire = {"wire": redact_json(to_json(placement.link))} if placement.link else {}
    return {"schema": SCHEMA, "placement": placement.name, "nodes": nodes, "skew": redact_json(rows), **wire}


def facts_json(environment: Environment) -> dict[str, Any]:
    """Convert facts to JSON data by name, without secrets."""
    return {name: _fact_json(name, fact) for name, fact in environment.facts.items()}


def _fact_json(name: str, fact: Fact) -> dict[str, Any]:
    """Convert a fact to JSON data without secrets. The value of a variable is redacted by the variable's name, too."""
    value = list(fact.value) if isinstance(fact.value, tuple) else fact.value
    if name.startswith("env.") and isinstance(value, str):
        value = redact_json({"env": {name.removeprefix("env."): value}})["env"][name.removeprefix("env.")]
    return {"state": fact.state.value, "value": redact_json(value), "why": redact_json(fact.why)}


def _read_node(data: Mapping[str, Any]) -> NodeFacts:
    facts = {str(name): _read_fact(one) for name, one in data["facts"].items()}
    return NodeFacts(str(data["hardware"]), str(data["host"]), Environment(facts))


def _decode_link(data: Mapping[str, Any]) -> LinkReport | None:
    try:
        return from_json(LinkReport, data["wire"]) if "wire" in data else None
    except RecordError as error:
        raise ValueError(error) from None


def _read_fact(data: Mapping[str, Any]) -> Fact:
    value = data["value"]
    kept = tuple(map(str, value)) if isinstance(value, list) else None if value is None else str(value)
    return Fact(FactState(data["state"]), kept, str(data.get("why", "")))
