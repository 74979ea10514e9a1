"""The container engine of a run goes away, and comes back."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.faults.conftest import Fault
from tests.faults.harness import ROOT, Session, containers, meetings
from tests.faults.own_engine import OwnEngine, has, image_here, may_have_one

pytestmark = [pytest.mark.real, pytest.mark.beside, pytest.mark.usefixtures("engine")]

IMAGE = ROOT / "containers" / "cpu-ompi5"


@pytest.fixture(scope="module")
def own_engine(engine: None, lacking: Callable[[str, str], None]) -> Iterator[OwnEngine]:
    """Has the image of the nodes; a run on this machine's engine makes that where it is not."""
    if not may_have_one():
        lacking("docker", "dockerd, or the right to start one, is not here")
    image = image_here(IMAGE)
    if not has(image):
        build = ("docker", "build", "-q", "--network", "host", "--build-arg", "BASE=hetgpu-base:bookworm")
        subprocess.run((*build, "-t", image, str(IMAGE)), check=True, capture_output=True)
    one = OwnEngine()
    try:
        one.start()
        one.load(image)
        yield one
    finally:
        one.close()


def over_it(fault: Fault, own_engine: OwnEngine) -> Session:
    return fault.at(containers(meetings(4, 0.4)), own_engine.url).start()


def test_the_engine_is_stopped(fault: Fault, own_engine: OwnEngine) -> None:
    """The Docker daemon is stopped, and started again after the run."""
    session = over_it(fault, own_engine)
    cell = session.reaches()
    own_engine.stop()
    try:
        session.end()
    finally:
        own_engine.start()
    fault.checked(session, cell)


def test_the_engine_is_restarted(fault: Fault, own_engine: OwnEngine) -> None:
    """The Docker daemon is restarted."""
    session = over_it(fault, own_engine)
    cell = session.reaches()
    own_engine.stop()
    own_engine.start()
    fault.checked(session, cell)
