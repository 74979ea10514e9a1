"""What is said of nodes that were not ready, or got lost."""

from __future__ import annotations

import pytest

from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures.nodes import Nodes


@pytest.mark.parametrize(
    ("line", "kind", "key"),
    [
        ("hetgpu: not ready: node1: the image has no python3", Kind.LAUNCH_FAILURE, "not-ready@image"),
        (
            "hetgpu: not ready: node1 (a on h): ssh from node0 (a on g) to 192.0.2.1 failed: Connection refused",
            Kind.LAUNCH_FAILURE,
            "not-ready@ssh",
        ),
        ("hetgpu: not ready: node1: something else", Kind.LAUNCH_FAILURE, "not-ready"),
        ("hetgpu: node node1 (a on h) was lost: the connection ended", Kind.NETWORK_FAILURE, "lost@node"),
        (
            "hetgpu: node node1 (a on h) was lost: the container ended with exit code 137: it was killed",
            Kind.CRASH,
            "lost@container",
        ),
    ],
)
def test_lines_of_ours(line: str, kind: Kind, key: str) -> None:
    dialect = Nodes()
    dialect.feed(line, 3)
    (reading,) = dialect.finish()
    assert (reading.signature.kind, reading.signature.key, reading.signature.primary_line) == (kind, key, line)


def test_the_same_words_in_mid_line_are_somebody_elses() -> None:
    dialect = Nodes()
    dialect.feed("it said: hetgpu: not ready: node1", 1)
    assert not dialect.finish()
