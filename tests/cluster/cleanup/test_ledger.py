"""What a process wrote down of where it started things, read by whoever comes after it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytest_hetgpu.cluster.cleanup.ledger import (
    FOLDER_VARIABLE,
    closed,
    head,
    home,
    ledgers,
    opened,
    read,
)
from pytest_hetgpu.cluster.cleanup.owner import myself
from pytest_hetgpu.cluster.cleanup.targets import target_of
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes._docker.address import engine_spot
from pytest_hetgpu.extensions.runtimes._kubernetes.leftovers import namespace_spot
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import ConnectionInfo

ME = myself("run")
HERE = Location("processes")
THERE = Location("host", "gpu1", ConnectionInfo("", "ada", 2222, "/home/ada/.ssh/key"))


def written(folder: Path, text: str) -> Path:
    path = folder / "1-x.ledger"
    path.write_text(text)
    return path


def test_places_are_read_back_but_those_that_are_closed(tmp_path: Path) -> None:
    path = written(tmp_path, head(ME) + opened(1, HERE) + opened(2, THERE) + opened(3, HERE) + closed(1) + closed(3))
    found = read(path)
    assert found is not None
    assert (found.owner, found.locations) == (ME, (THERE,))
    assert list(ledgers(tmp_path)) == [found]


def test_a_last_line_that_was_cut_off_costs_no_other(tmp_path: Path) -> None:
    text = head(ME) + opened(1, HERE) + opened(2, THERE)
    for cut in range(len(head(ME)), len(text)):
        found = read(written(tmp_path, text[:cut]))
        assert found is not None
        assert found.locations in ((), (HERE,), (HERE, THERE))
    whole = read(written(tmp_path, text))
    assert whole is not None
    assert whole.locations == (HERE, THERE)


@pytest.mark.parametrize("text", ["", "\n", "{}", "[1]", '{"owner": 1}', '{"owner": "me"}\n', "\0\xff" * 100])
def test_a_file_that_is_no_ledger_is_passed_over(tmp_path: Path, text: str) -> None:
    assert read(written(tmp_path, text)) is None
    assert read(tmp_path / "nothing") is None


def test_an_engine_over_tls_is_found_again_without_the_environment_it_was_found_in() -> None:
    environ = {"DOCKER_HOST": "tcp://gpu1:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/c", "OTHER": "x"}
    spot = engine_spot(ConnectionInfo(), environ)
    assert spot.reach.engine == "tcp://gpu1:2376"
    assert dict(spot.environ) == {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/c"}
    assert engine_spot(ConnectionInfo("ssh://ada@gpu1"), environ) == Location(
        "engine", "", ConnectionInfo("ssh://ada@gpu1")
    )


def test_a_namespace_is_found_again_whatever_the_current_context_becomes(tmp_path: Path) -> None:
    spot = namespace_spot("rcp", "gpu", "/home/ada/.kube/rcp", ("jobs.batch", "pods"))
    found = read(written(tmp_path, head(ME) + opened(1, spot)))
    assert found is not None
    assert found.locations == (spot,)
    place = target_of(spot)
    assert place.words == "namespace gpu of Kubernetes at rcp (/home/ada/.kube/rcp)"


def test_ledgers_lie_in_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert home() == tmp_path / "state" / "hetgpu" / "ledgers"
    assert stat.S_IMODE(home().stat().st_mode) == 0o700


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    with pytest.raises(UsageError, match=r"it can be written to by others \(mode 0777\).*HETGPU_LEDGERS"):
        home()


def test_where_the_home_is_no_place_to_write_to_the_folder_for_temporary_files_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert home() == tmp_path / f"hetgpu-{os.geteuid()}" / "ledgers"
