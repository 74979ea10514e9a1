"""The container engine of a run goes away, and comes back."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Fault
from tests.faults.harness import ROOT, Session, containers, identity, meetings
from tests.faults.own_engine import OwnEngine, has, image_here, may_have_one
from tests.real.nodes_here import docker

pytestmark = [pytest.mark.real, pytest.mark.beside, pytest.mark.usefixtures("engine")]

AWAY_LONG = pytest.mark.nightly(reason="waits for an engine to come back; `.ci/nightly faults` repeats it")
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


AWAY = 3.0
"""Seconds for which the engine is down."""
CELLS = 5


def over_it(fault: Fault, own_engine: OwnEngine, *options: str, **env: str) -> Session:
    site = fault.at(containers(meetings(CELLS, 1.0)), own_engine.url)
    site.env.update(env)
    return site.start(*options)


def hit(session: Session) -> str:
    """A random moment at which the ranks of a cell are at work; the cell."""
    number = session.site.chance.randint(2, CELLS - 1)
    return session.reaches(number, spread=0.5, output="met once")


def pause(session: Session) -> None:
    """The time for which the engine is down, unless the session ends before."""
    with contextlib.suppress(AssertionError):
        session.end(AWAY)


def no_cell_is_lost(session: Session, *met: str) -> None:
    """Every cell passed in this session; those that were `met` failed first, by the engine's name, and are flaky."""
    assert session.end() == 0, session.said()
    outcomes = {cell[-1]: outcome for cell, outcome in session.judged().items()}
    assert [outcome["kind"] for outcome in outcomes.values()] == ["passed"] * CELLS, session.said()
    for cell in met:
        (attempt,) = outcomes[cell]["attempts"]
        assert (attempt["kind"], attempt["key"]) == ("network_failure", "engine-lost@docker"), session.said()
        assert f"flaky    {cell}" in session.said()


@AWAY_LONG
def test_the_engine_is_stopped(fault: Fault, own_engine: OwnEngine) -> None:
    """The Docker daemon is stopped, and started again after the run."""
    session = over_it(fault, own_engine, HETGPU_ENGINE_TIMEOUT="2")
    cell = hit(session)
    own_engine.stop()
    try:
        session.end()
        assert session.judged()["faults", cell]["signature"]["key"] == "engine-lost@docker", session.said()
        rest = [event["reason"] for event in session.events("skipped")]
        assert rest, session.said()
        assert all(f"{own_engine.url} went away and has not answered for 2 s" in why for why in rest), rest
    finally:
        own_engine.start()
    fault.checked(session, cell)


@AWAY_LONG
def test_the_engine_is_restarted(fault: Fault, own_engine: OwnEngine) -> None:
    """The Docker daemon is restarted, and is away for 3 s."""
    session = over_it(fault, own_engine)
    cell = hit(session)
    own_engine.stop()
    pause(session)
    own_engine.start()
    no_cell_is_lost(session, cell)
    waited = f"waits for the container engine at {own_engine.url}: it does not answer (up to 30 s)"
    assert waited in session.said()
    assert waited in [event["why"] for event in session.events("waits")]
    fault.checked(session, cell)


@AWAY_LONG
def test_the_engine_is_killed(fault: Fault, own_engine: OwnEngine) -> None:
    """`kill -9` of the Docker daemon under two workers, which is started again after 3 s."""
    session = over_it(fault, own_engine, "-n", "2")
    cell = hit(session)
    own_engine.kill()
    pause(session)
    own_engine.start()
    no_cell_is_lost(session, cell)
    fault.checked(session, cell)


MMDEBSTRAP = """\
#!/bin/sh
# Stands in for minutes of downloads: the root of the image that this machine's engine has.
for word; do case $word in */base.tar) cp "{tar}" "$word" ;; esac; done
echo made >> {made}
"""
DOCKERFILE = """\
ARG BASE=debian:bookworm-slim
FROM ${BASE}
ENV PATH=/opt/mpi/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""


def exported(image: str, tar: Path) -> None:
    """Writes the root of an image of this machine's engine."""
    container = docker("create", image, "true").strip()
    try:
        docker("export", "-o", str(tar), container)
    finally:
        docker("rm", container)


def test_there_is_no_base_image(fault: Fault, own_engine: OwnEngine) -> None:
    """The Docker engine has no base image, and no registry can be reached."""
    folder, programs = fault.home / IMAGE.name, fault.home / "programs"
    folder.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE)
    # One that comes with a matrix is never run.
    (folder / "make-base").write_text(f"touch {fault.home}/hostile")
    exported(image_here(IMAGE), fault.home / "root.tar")
    programs.mkdir()
    stand_in = programs / "mmdebstrap"
    stand_in.write_text(MMDEBSTRAP.format(tar=fault.home / "root.tar", made=fault.home / "made"))
    stand_in.chmod(0o755)
    matrix = containers(meetings(2, 0.2))
    matrix["hardware"]["node"]["image"] = str(folder)
    site = fault.at(matrix, own_engine.url)
    site.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    session = site.start()
    assert session.end() == 0, session.said()
    told = "makes the base image hetgpu-base:bookworm from Debian's packages with containers/make-base (about 90 s)"
    assert told in [event["why"] for event in session.events("waits")]
    assert (fault.home / "made").read_text() == "made\n"
    assert not (fault.home / "hostile").exists()
    # Locks of builds, by user: who removed one would let two others have it.
    shutil.rmtree(site.temporary / f"hetgpu-{os.geteuid()}")
    session.kept = session.judged()
    session.launches = Counter(identity(event) for event in session.events("started"))
    fault.checked(session)
