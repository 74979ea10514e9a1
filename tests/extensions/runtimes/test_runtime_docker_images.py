"""Images of nodes: found, built and pulled on a real engine."""

from __future__ import annotations

import multiprocessing
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions import build_context
from pytest_hetgpu.extensions.runtimes._docker import images as _images
from pytest_hetgpu.extensions.runtimes._docker.engine import engine_of
from pytest_hetgpu.model.job import ConnectionInfo, Image
from pytest_hetgpu.planning.shell.docker import build_command
from tests.extensions.runtimes.container_nodes import BASE, Site, docker, local_site, node

pytestmark = pytest.mark.real

MARK = secrets.token_hex(4)  # on what is built here, and nowhere else


@pytest.fixture
def site(lacking: Callable[[str, str], None]) -> Iterator[Site]:
    yield from local_site(lacking)


@pytest.fixture(autouse=True)
def _removed() -> Iterator[None]:
    """What is built here goes again; a dangling image, which a base that was made anew leaves, too."""
    yield
    if shutil.which("docker"):
        listed = subprocess.run(
            ("docker", "images", "-q", "--filter", f"label=hetgpu.test={MARK}"),
            capture_output=True,
            text=True,
            check=False,
        )
        for ident in set(listed.stdout.split()):
            subprocess.run(("docker", "rmi", "-f", ident), capture_output=True, check=False)


def built(folder: Path, *steps: str, base: str = BASE) -> Image:
    """An image of steps after a base, not yet built."""
    folder.mkdir(exist_ok=True)
    text = "\n".join(("ARG BASE", "FROM ${BASE}", f'LABEL hetgpu.test="{MARK}"', *steps, ""))
    (folder / "Dockerfile").write_text(text)
    args = {"BASE": base}
    return Image(build_context.reference(str(folder), args), str(folder), args)


def ident(reference: str) -> str:
    return docker("image", "inspect", "--format", "{{.Id}}", reference)


def ensure(image: Image) -> None:
    _images.ensure(engine_of("node0", ConnectionInfo()), image, "node0")


def test_a_folder_is_built_once(site: Site, tmp_path: Path) -> None:
    # Each build of it would be another image.
    image = built(tmp_path / "x", "RUN cat /proc/sys/kernel/random/uuid > /built")
    with ThreadPoolExecutor() as pool:
        members = list(pool.map(site.open, [node(index, image) for index in range(3)]))
    assert len({member.read(["/built"])["/built"] for member in members}) == 1
    first = ident(image.reference)
    _images.forget(engine_of("node0", ConnectionInfo()), image)
    ensure(image)
    assert ident(image.reference) == first


def test_processes_do_not_build_one_image_at_once(site: Site, tmp_path: Path) -> None:
    image = built(tmp_path / "x", "RUN cat /proc/sys/kernel/random/uuid > /built")
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=ensure, args=(image,)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    listed = docker("images", "-aq", "--filter", f"label=hetgpu.test={MARK}", "--filter", "dangling=true", "--no-trunc")
    assert ident(image.reference) not in listed.split()
    assert docker("images", "-q", image.reference.partition(":")[0]).count("\n") == 0


def test_an_image_is_built_anew_when_its_base_was(site: Site, tmp_path: Path) -> None:
    base = f"hetgpu-test-base:{site.run}"
    docker("tag", BASE, base)
    try:
        image = built(tmp_path / "x", "RUN true", base=base)
        ensure(image)
        before = ident(image.reference)
        other = tmp_path / "base"
        newer = built(other, "RUN echo newer > /newer")
        docker("build", "-q", "-t", base, "--build-arg", f"BASE={BASE}", newer.folder)
        _images.forget(engine_of("node0", ConnectionInfo()), image)
        assert site.open(node(0, image)).read(["/newer"])["/newer"] == b"newer\n"
        assert ident(image.reference) != before
    finally:
        docker("rmi", base)


def test_an_image_built_by_hand_is_used(site: Site, tmp_path: Path) -> None:
    image = built(tmp_path / "x", "RUN true")
    docker(*build_command(image, ConnectionInfo())[1:])
    before = ident(image.reference)
    site.open(node(0, image))
    assert ident(image.reference) == before


def test_an_image_that_somebody_removed_is_built_again(site: Site, tmp_path: Path) -> None:
    image = built(tmp_path / "x", "RUN true")
    ensure(image)
    docker("rmi", "-f", image.reference)
    site.open(node(0, image))


def test_what_is_ignored_is_not_sent(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "kept").write_text("1")
    (folder / "secret").write_text("2")
    (folder / ".dockerignore").write_text("*\n!kept\n")
    image = built(folder, "COPY . /sent/")
    listed = site.open(node(0, image)).ask(("ls", "-A", "/sent")).stdout.split()
    assert b"kept" in listed
    assert b"secret" not in listed


def test_a_build_that_fails_says_where_and_why(site: Site, tmp_path: Path) -> None:
    image = built(tmp_path / "x", "RUN seq 100 && echo no luck && exit 7", "RUN true")
    with pytest.raises(ProvisionError) as caught:
        site.open(node(0, image))
    what = f"the image {image.reference} cannot be built from {image.folder}"
    said = re.sub("Step 4/[0-9]", "Step 4/N", str(caught.value))  # labels that we add count, too
    step = "Step 4/N : RUN seq 100 && echo no luck && exit 7"
    assert said == f"node0: {what}: {step}: no luck (exit code 7)"
    assert {"1", "50", "100", "no luck"} <= set(caught.value.log)
    started = time.monotonic()
    with pytest.raises(ProvisionError):  # not tried again in this process
        site.open(node(1, image))
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("NONSENSE", "unknown instruction: NONSENSE"),
        ("COPY nowhere /x", "nowhere"),
        ("RUN --mount=type=cache,target=/x true", "needs BuildKit"),
    ],
)
def test_a_dockerfile_that_is_wrong_is_said(site: Site, tmp_path: Path, step: str, said: str) -> None:
    image = built(tmp_path / "x", step)
    with pytest.raises(ProvisionError, match=f"(?s)node0: .*{said}"):
        site.open(node(0, image))


def test_a_base_that_is_nowhere_is_said(site: Site, tmp_path: Path) -> None:
    image = built(tmp_path / "x", base="localhost:1/no/base:1")
    with pytest.raises(ProvisionError, match=r"(?s)node0: the image .* Step 2/.*cannot reach the registry"):
        site.open(node(0, image))


def test_an_image_without_python_is_said(site: Site, tmp_path: Path) -> None:
    image = built(tmp_path / "no-python", "RUN mv /usr/bin/python3 /usr/bin/python4")
    with pytest.raises(ProvisionError, match="node0: the image has no python3: a node needs Python 3.6"):
        site.open(node(0, image))


def test_an_image_for_another_processor_is_said(site: Site, tmp_path: Path) -> None:
    image = built(
        tmp_path / "alien",
        "FROM scratch",
        f'LABEL hetgpu.test="{MARK}"',
        "COPY python3 /bin/sh",
        "COPY python3 /usr/bin/python3",
    )
    folder = Path(image.folder)
    header = bytearray(Path("/bin/true").read_bytes()[:64])
    header[18:20] = (8, 0)  # e_machine: MIPS
    (folder / "python3").write_bytes(header)
    (folder / "python3").chmod(0o755)
    image = replace(image, reference=build_context.reference(str(folder), image.args))
    with pytest.raises(ProvisionError, match="node0: the image is for another processor architecture"):
        site.open(node(0, image))


def test_a_wrong_image_name_is_said(site: Site) -> None:
    started = time.monotonic()
    for _ in range(5):
        with pytest.raises(
            ProvisionError, match=r"node0: the image localhost:1/no/image:1 is not on .* cannot be pulled"
        ):
            site.open(node(0, Image("localhost:1/no/image:1")))
    assert time.monotonic() - started < 30
    with pytest.raises(ProvisionError, match=r"node0: .*no name of an image"):
        site.open(node(0, Image("Not A Name")))
