"""Nodes that are not what they were when the run began."""

from __future__ import annotations

from pathlib import Path

from pytest_hetgpu.cluster.drift import drift_since_start, keep_first_facts
from pytest_hetgpu.model.facts import Environment, found
from pytest_hetgpu.store import environment
from pytest_hetgpu.store.environment import NodeFacts, PlacementFacts


def seen(**facts: str) -> PlacementFacts:
    told = Environment({name: found(value) for name, value in facts.items()})
    return PlacementFacts("m-two", {"node0": NodeFacts("cpu", "a", told)})


def test_another_version_is_said_of_the_node(tmp_path: Path) -> None:
    environment.write(tmp_path, seen(ucx="1.18.0", openmpi="5.0.8"))
    assert list(drift_since_start(tmp_path, seen(ucx="1.20.1"))) == []  # the first part, still
    for ucx in ("1.20.1", "1.20.2"):
        keep_first_facts(tmp_path)
        now = seen(ucx=ucx, openmpi="5.0.8")
        environment.write(tmp_path, now)
        [concern] = drift_since_start(tmp_path, now)
        assert not concern.certain
        assert str(concern) == (
            f"node0: ucx is {ucx}, but was 1.18.0 in the first part of this run; "
            "what was judged before stays; for a verdict on these versions alone start a new run"
        )


def test_what_was_not_known_is_no_difference(tmp_path: Path) -> None:
    environment.write(tmp_path, seen(openmpi="5.0.8"))
    keep_first_facts(tmp_path)
    assert list(drift_since_start(tmp_path, seen(ucx="1.20.1"))) == []
