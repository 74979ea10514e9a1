"""Whole runs on real containers: what such tests share."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from junitparser import JUnitXml

ROOT = Path(__file__).parents[2]
RAW = "reports/.private/*/*.log"
"""The raw logs of running cells, and of those whose text held secrets."""

HEAD = f"""\
name: nodes
hardware:
  one: {{runtime: docker, image: {ROOT}/containers/cpu-ompi5}}
  other: {{runtime: docker, image: {ROOT}/containers/cpu-ompi5-b}}
"""
AXES = """\
axes:
  placement: {pair: [one, one]}
  transport: {ob1: {}}
  workload: {allreduce: {sizes: [8, 64K]}}
"""
BUILD = """\
build:
  "*": {network: host}
  cpu-ompi5: {args: {BASE: "hetgpu-base:bookworm"}}
  cpu-ompi5-b: {args: {BASE: "hetgpu-base:trixie"}}
"""
HOSTS = "hardware: {one: [localhost], other: [localhost]}\n"


def docker(*arguments: str, patience: float = 60) -> str:
    """What the docker command line prints."""
    done = subprocess.run(("docker", *arguments), capture_output=True, text=True, check=False, timeout=patience)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def left(run: str) -> list[str]:
    """Containers and networks that carry a run's label."""
    label = f"label=hetgpu.run={run}"
    containers = docker("ps", "-a", "--filter", label, "--format", "{{.Names}}").split()
    return [*containers, *docker("network", "ls", "--filter", label, "--format", "{{.Name}}").split()]


def properties(reports: Path) -> dict[str, dict[str, str]]:
    """Each cell's properties by its name."""
    suites = JUnitXml.fromfile(str(reports / "latest" / "junit.xml"))
    return {
        str(case.name): {p.get("name"): p.get("value") for p in case._elem.iter("property")}
        for suite in suites
        for case in suite
    }


def environment(reports: Path, placement: str) -> dict[str, Any]:
    """What was kept of a placement's nodes."""
    path = reports / "latest" / "placements" / f"nodes-{placement}" / "environment.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found
