"""A run that somebody else hands on (a CI job's artefact, a bundle): it shows what it holds, and nothing of ours."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.cli.report import rejudge
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes.containers.build_context import reference
from pytest_hetgpu.model.job import Image
from pytest_hetgpu.reporting.upstream.bundle import write_bundle
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, KEY, job, result, run_cell

LABEL = "mixed-ucx-send"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "reports")
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        run_cell(folder, journal, LABEL, CRASHED)
    return folder


def a_link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def a_folder_that_is_a_link(path: Path, secret: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(secret.parent)


def a_pipe(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path, secret: Path) -> None:
    os.mknod(path, 0o140600)


@pytest.mark.parametrize("laid", [a_link, a_folder_that_is_a_link, a_pipe, a_socket])
@pytest.mark.parametrize("name", ["output.log", "job.json"])
def test_what_a_run_leads_to_is_not_read(
    run: RunFolder, tmp_path: Path, name: str, laid: Callable[[Path, Path], None]
) -> None:
    secret = tmp_path / "home" / name
    secret.parent.mkdir()
    secret.write_text("s3cr3t\n")
    path = run.scenario(LABEL) / name
    path.unlink()
    laid(path, secret)
    with pytest.raises(UsageError, match="a run holds plain files only"):
        list(rejudge(run.path))
    with pytest.raises(UsageError, match="a run holds plain files only"):
        write_bundle(run.path, KEY, tmp_path / "a.tar.gz")
    assert not (tmp_path / "a.tar.gz").exists()
    assert not any(
        "s3cr3t" in file.read_text() for file in run.path.rglob("*.[jmh]*") if file.is_file() and not file.is_symlink()
    )


def test_the_newest_run_may_still_be_named_by_its_link(run: RunFolder, tmp_path: Path) -> None:
    latest = run.path.parent / "latest"
    assert latest.is_symlink()
    assert list(rejudge(latest))
    assert write_bundle(latest, LABEL, tmp_path / "a.tar.gz").files


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as packed:
        return [name.partition("/")[2] for name in packed.getnames()]


def test_a_bundle_has_an_images_folder_only_if_the_image_was_built_of_it(run: RunFolder, tmp_path: Path) -> None:
    home = tmp_path / "image"
    home.mkdir()
    (home / "Dockerfile").write_text("FROM scratch\n")
    (home / "id_ed25519").write_text("s3cr3t\n")

    def packed(named: str) -> list[str]:
        (node,) = job(LABEL).nodes[:1]
        of_image = replace(node, image=Image(named, str(home)))
        run.write_job(replace(job(LABEL), nodes=(of_image,)), result(str(run.log(LABEL))))
        return names_in(write_bundle(run.path, KEY, tmp_path / "a.tar.gz").files[0])

    assert "images/image/id_ed25519" in packed(reference(str(home), {}))
    assert not any("id_ed25519" in name for name in packed("hetgpu/image:000000000000"))
    (home / "Dockerfile").unlink()
    assert not any("id_ed25519" in name for name in packed("hetgpu/image:000000000000"))
