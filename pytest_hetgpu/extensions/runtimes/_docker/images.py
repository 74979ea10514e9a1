"""Images made ready on an engine: used as they are, pulled, or built; each once per engine and process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from weakref import WeakKeyDictionary

from pytest_hetgpu.errors import HetgpuError, ProvisionError, UsageError
from pytest_hetgpu.extensions.runtimes._docker import base_images
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine, EngineGone
from pytest_hetgpu.extensions.runtimes._docker.errors import refused
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.containers.build_context import base_of, context
from pytest_hetgpu.model.job import Image

BASE_LABEL = "hetgpu.base-id"
_STEP = 0.25  # seconds between two tries for the lock of another process that builds


class _Readiness:
    """The state of one image on one engine. Later requests get the same answer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.error: HetgpuError | None = None
        self.done = False


_known: WeakKeyDictionary[Engine, dict[str, _Readiness]] = WeakKeyDictionary()
_lock = threading.Lock()


def ensure(engine: Engine, image: Image, node: str, deployment: Deployment | None = None) -> None:
    """Make the image available on the engine; raise NotHere or ProvisionError. Later callers get the same result.

    The `log` of a failed build is its whole output. `deployment` reports each long wait. An abandoned deployment or a
    failed engine proves nothing about the image: the next caller tries again.
    """
    with _lock:
        readiness = _known.setdefault(engine, {}).setdefault(image.reference, _Readiness())
    with readiness.lock:
        if readiness.error:
            raise readiness.error
        if readiness.done:
            return
        try:
            _make_plainly(engine, image, node, deployment)
        except EngineGone:
            raise
        except HetgpuError as error:
            if not (deployment and deployment.abandoned.is_set()):
                readiness.error = error
            raise
        readiness.done = True


def forget(engine: Engine, image: Image) -> None:
    """Forget an image that another process removed: the next request looks again."""
    with _lock:
        _known.get(engine, {}).pop(image.reference, None)


def _make_plainly(engine: Engine, image: Image, node: str, deployment: Deployment | None) -> None:
    """Make an image; convert errors of this machine (a full disk, a changed folder) to ProvisionError."""
    try:
        _make(engine, image, node, deployment)
    except UsageError as error:
        raise ProvisionError(node, f"the image {image.reference} cannot be built now: {error}") from error
    except OSError as error:
        why = ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
        raise ProvisionError(node, f"the image {image.reference} cannot be built: {why}") from error


def _make(engine: Engine, image: Image, node: str, deployment: Deployment | None) -> None:
    if not image.folder:
        if _inspect(engine, image.reference, node) is None:
            _pull(engine, image.reference, node)
        return
    base = _base(engine, image, node)
    if _current(engine, image, base, node):
        return
    base = base or _own_base(engine, image, node, deployment)
    with _alone(engine, image.reference, node, deployment):
        if not _current(engine, image, base, node):
            with _telling(deployment, f"builds the image {image.reference} from {image.folder}"):
                _build(engine, image, base, node)


def _own_base(engine: Engine, image: Image, node: str, deployment: Deployment | None) -> str:
    """Return the id of the project's base that the image is built from, after building a missing one; else ""."""
    name = ""
    with contextlib.suppress(OSError):  # the folder changed meanwhile: packing it reports more
        name = base_of(image.folder, image.args)
    if not base_images.is_ours(name):
        return ""
    with _alone(engine, name, node, deployment):
        if _inspect(engine, name, node) is None:
            with _telling(deployment, f"makes the base image {name} {base_images.HOW}"):
                base_images.make(engine, name, node, deployment)
    return _base(engine, image, node)


@contextlib.contextmanager
def _telling(deployment: Deployment | None, what: str) -> Iterator[None]:
    """Report `what` to the deployment during a long wait, and report its end."""
    if deployment:
        deployment.tell(what)
    try:
        yield
    finally:
        if deployment:
            deployment.tell("")


def _inspect(engine: Engine, reference: str, node: str) -> dict[str, Any] | None:
    """Return the engine's record of an image; None if it has no image of that name."""
    from docker.errors import ImageNotFound, NotFound

    with engine.speaking(node) as api:
        try:
            found: dict[str, Any] = api.inspect_image(reference)
        except (ImageNotFound, NotFound):
            return None
        return found


def _base(engine: Engine, image: Image, node: str) -> str:
    """Return the id of the base of a build if the engine has it; else ""."""
    name = base_of(image.folder, image.args)
    found = _inspect(engine, name, node) if name else None
    return str(found["Id"]) if found else ""


def _current(engine: Engine, image: Image, base: str, node: str) -> bool:
    """Return whether the engine has the image, built from the current base if both are known."""
    found = _inspect(engine, image.reference, node)
    if found is None:
        return False
    built_from = (found["Config"].get("Labels") or {}).get(BASE_LABEL, "")
    return not (base and built_from and built_from != base)


def _pull(engine: Engine, reference: str, node: str) -> None:
    import docker

    name, tag = docker.utils.parse_repository_tag(reference)
    said = ""
    try:
        with engine.speaking(node) as api:
            for event in api.pull(name, tag=tag or "latest", stream=True, decode=True):
                said = str(event.get("error") or said)
    except EngineGone:
        raise
    except ProvisionError as error:
        raise _not_pulled(engine, reference, node, str(error).removeprefix(f"{node}: ")) from error
    if said:
        raise _not_pulled(engine, reference, node, refused(said, engine.at.where).text)


def _not_pulled(engine: Engine, reference: str, node: str, why: str) -> ProvisionError:
    return ProvisionError(node, f"the image {reference} is not on {engine.at.where} and cannot be pulled: {why}")


def _build(engine: Engine, image: Image, base: str, node: str) -> None:
    log: list[str] = []
    error = ""
    with tempfile.TemporaryFile() as tar:
        _pack(image.folder, tar)
        with engine.speaking(node) as api:
            answer = api.build(
                fileobj=tar,
                custom_context=True,
                tag=image.reference,
                buildargs=dict(image.args),
                network_mode=image.network or None,
                labels={BASE_LABEL: base} if base else None,
                rm=True,
                forcerm=True,
                decode=True,
                use_config_proxy=True,
            )
            for event in answer:
                log.append(str(event.get("stream") or ""))
                error = str(event.get("error") or error)
    if error:
        raise _failed(engine, image, node, "".join([*log, error, "\n"]))


def _failed(engine: Engine, image: Image, node: str, log: str) -> ProvisionError:
    lines = [line.rstrip() for line in _plain(log).splitlines() if line.strip()]
    step = next((line for line in reversed(lines) if line.startswith("Step ")), "its beginning")
    code = re.search(r"returned a non-zero code: (\d+)$", lines[-1])
    # The last line of the command explains more than the fact that it failed.
    last = next((line for line in reversed(lines[:-1]) if not line.startswith(("Step ", " ---> ", "Removing "))), "")
    why = refused(lines[-1], engine.at.where)
    text = f"{last} (exit code {code[1]})" if code else why.text if why.known else lines[-1]
    return ProvisionError(
        node, f"the image {image.reference} cannot be built from {image.folder}: {step}: {text}", lines
    )


def _plain(log: str) -> str:
    """Remove colours, and keep only the last state of a line that was overwritten."""
    return re.sub(r"[^\n]*\r(?!\n)", "", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", log))


def _pack(folder: str, tar: IO[bytes]) -> None:
    """Pack the build context as a tar: exactly the files of the image's digest."""
    with tarfile.open(mode="w", fileobj=tar) as archive:
        for entry in context(folder):
            archive.add(Path(folder, entry.path), entry.path, recursive=False, filter=_anonymous)
    tar.seek(0)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


@contextlib.contextmanager
def _alone(engine: Engine, reference: str, node: str, deployment: Deployment | None) -> Iterator[None]:
    """Allow one build of an image at a time among the processes of this user on this machine.

    A process that has to wait reports that to `deployment`. It raises ProvisionError once the deployment is abandoned.
    """
    folder = Path(tempfile.gettempdir(), f"hetgpu-{os.geteuid()}")
    _private(folder)
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{engine.at.host}-{reference}").strip("-")
    lock = os.open(folder / f"build-{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not _taken(lock):
            abandoned = deployment.abandoned if deployment else threading.Event()
            with _telling(deployment, f"waits for another process, which makes the image {reference}"):
                while not _taken(lock):
                    if abandoned.wait(_STEP):
                        raise ProvisionError(node, f"the image {reference} {base_images.GIVEN_UP}")
        yield
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    """Return whether this process now has the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _private(folder: Path) -> None:
    """Create the folder with mode 0700 if necessary; raise OSError unless this user is its owner and only writer."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    trouble = ""
    if not stat.S_ISDIR(found.st_mode):
        trouble = "is not a folder"
    elif found.st_uid != os.geteuid():
        trouble = f"belongs to user id {found.st_uid}, not to you ({os.geteuid()})"
    elif found.st_mode & 0o022:
        trouble = f"can be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    if trouble:
        raise PermissionError(errno.EACCES, f"{trouble}; remove it", str(folder))
