"""Base images of this project, built from Debian packages if an engine lacks them: no registry has them.

The script of this package builds only two names, and only on an engine of this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.package_data import PACKAGE
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine, EngineGone
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.process.ledger import marked, tracker

_NAME = re.compile(r"hetgpu-base:(bookworm|trixie)")
_STEP = 0.25  # seconds between two checks whether the image is still needed
HOW = "from Debian's packages with containers/make-base (about 90 s)"
"""The progress message for a build, after the name of the image."""
GIVEN_UP = "is no longer waited for: its placement was given up"
"""The reason, after the name of an image, of an abandoned build: no node needs it any more."""


def is_ours(name: str) -> bool:
    """Return whether `make` can build an image of this name."""
    return _NAME.fullmatch(name) is not None


def make(engine: Engine, name: str, node: str, deployment: Deployment | None) -> None:
    """Build one of the base images with `containers/make-base`; the caller excludes other processes that build it.

    Raises:
        ProvisionError: This process cannot build it; the error names the command.
        EngineGone: The engine failed meanwhile. The failure of the script then proves nothing about the image.

    """
    found = _NAME.fullmatch(name)
    assert found is not None
    script = _script()
    lacking = _lacking(engine, script)
    if lacking:
        where = f" on {engine.at.host}" if engine.at.by_ssh else ""
        raise ProvisionError(
            node,
            f"{engine.at.where} lacks the base image {name}, which no registry has, and it is not made here "
            f"({lacking}): make it{where} as root with `bash {script or 'containers/make-base'} {found[1]}`",
        )
    assert script is not None
    with engine.speaking(node) as api:
        since = engine.watch(api)
    code, lines = _run(engine, ("bash", str(script), found[1]), deployment)
    if not code:
        return
    if deployment and deployment.abandoned.is_set():
        raise ProvisionError(node, f"the base image {name} {GIVEN_UP}")
    if away := engine.away(since):
        raise EngineGone(node, f"the base image {name} cannot be made: {away}", None)
    why = lines[-1] if lines else f"exit code {code}"
    raise ProvisionError(node, f"the base image {name} cannot be made with {script}: {why}", lines)


def _script() -> Path | None:
    """Return the script in the wheel, or beside the package in its checkout; never one from a matrix folder."""
    inside = PACKAGE / "containers" / "make-base"
    if inside.is_file():
        return inside
    beside = PACKAGE.parent / "containers" / "make-base"
    return beside if (PACKAGE.parent / "pyproject.toml").is_file() and beside.is_file() else None


def _lacking(engine: Engine, script: Path | None) -> str:
    """Return the reason why this process cannot build a base image; "" if it can."""
    if not engine.at.local:
        return "the engine is not of this machine"
    if script is None:
        return "containers/make-base is not installed"
    if shutil.which("mmdebstrap") is None:
        return "there is no mmdebstrap: `apt-get install mmdebstrap`"
    if shutil.which("docker") is None:
        return "there is no docker command: `apt-get install docker.io`"
    return "" if os.geteuid() == 0 else "that needs root"


def _run(engine: Engine, argv: Sequence[str], deployment: Deployment | None) -> tuple[int, list[str]]:
    """Run the script until it ends or no node needs the image any more; return its exit code and last lines."""
    tracker().processes()
    environment = marked({**os.environ, "DOCKER_HOST": engine.at.url})
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None and not (deployment and deployment.abandoned.is_set()):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_STEP)
        finally:
            _end(process)
        return process.returncode, _lines(said)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the script and its children: SIGTERM first, so that it removes its files, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20 * _STEP)
    process.wait()


def _lines(said: IO[bytes]) -> list[str]:
    said.seek(0)
    return [line.rstrip() for line in said.read().decode(errors="replace").splitlines() if line.strip()][-200:]
