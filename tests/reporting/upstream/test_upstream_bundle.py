"""The archives of a failure: complete, small enough, free of secrets; and their script."""

from __future__ import annotations

import random
import subprocess
import tarfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes.containers.build_context import reference
from pytest_hetgpu.model.job import Command, Image
from pytest_hetgpu.model.outcome import DebugRun
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.reporting.upstream.bundle import write_bundle
from pytest_hetgpu.reporting.upstream.script import portable_job, render_script
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, KEY, PASSED, job, result, run_cell

SECRET = "ghp_" + "s3cr3t12" * 5
NAME = "SIGSEGV-libuct-rocm.so-uct-rocm-copy-ep-put-short"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "reports")
    with closing(Journal(folder.path, "main")) as journal:
        run_cell(folder, journal, "mixed-ucx-send", PASSED)
        log = f"-----BEGIN PRIVATE KEY-----\nMIIEow\n-----END PRIVATE KEY-----\ntoken={SECRET}\n".encode()
        debug = DebugRun(Kind.CRASH, KEY, "scenarios/mixed-ucx-allreduce/debug/output.log", 1.0)
        run_cell(folder, journal, "mixed-ucx-allreduce", replace(CRASHED, debug=debug), log)
        again = folder.for_attempt("debug").log("mixed-ucx-allreduce")
        again.parent.mkdir()
        again.write_text("more\n")
        run_cell(folder, journal, "mixed-ucx-gather", CRASHED, b"another\n")
    return folder


def contents(*archives: Path) -> dict[str, bytes]:
    found = {}
    for path in archives:
        with tarfile.open(path) as archive:
            for entry in archive:
                assert entry.isfile()
                assert (entry.uname, entry.mtime) == ("", 0)
                made = archive.extractfile(entry)
                assert made
                found[entry.name] = made.read()
    return found


def test_a_key_brings_all_its_cells(run: RunFolder, tmp_path: Path) -> None:
    made = write_bundle(run.path, KEY, tmp_path / "b.tar.gz")
    assert made.files == (tmp_path / "b.tar.gz",)
    assert (made.project.name, made.title.split(" ")[0]) == ("UCX", "SIGSEGV")
    found = contents(*made.files)
    names = {name.removeprefix(f"{NAME}/") for name in found}
    assert {"issue.md", "reproduce.sh", "programs/allreduce.py", "programs/harness.py"} <= names
    assert {name for name in names if name.startswith("cells/")} == {
        *(f"cells/mixed-ucx-{cell}/{file}" for cell in ("allreduce", "gather") for file in ("job.json", "output.log")),
        "cells/mixed-ucx-allreduce/debug.log",
    }
    everything = b"".join(found.values())
    assert b"s3cr3t" not in everything
    assert b"MIIEow" not in everything


def test_a_cell_brings_itself(run: RunFolder, tmp_path: Path) -> None:
    found = contents(*write_bundle(run.path, "mixed-ucx-gather", tmp_path / "b.tar.gz").files)
    assert {name.split("/")[2] for name in found if "/cells/" in name} == {"mixed-ucx-gather"}


def test_an_images_folder_has_no_secrets(run: RunFolder, tmp_path: Path) -> None:
    home = tmp_path / "box"
    (home / ".git").mkdir(parents=True)
    (home / "conf").mkdir()
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEow\n-----END PRIVATE KEY-----\n"
    binary = b"\x7fELF\0token=hunter2xyz\xff"
    texts = {
        "Dockerfile": f"FROM scratch\nENV API_TOKEN={SECRET}\nCOPY run.sh /\n",
        "run.sh": "#!/bin/sh\ncurl -u me:s3cr3tword https://x\n",
        "conf/server.pem": pem,
        ".dockerignore": "ignored*\n!ignored-not\n",
        "ignored": "s3cr3t",
        "ignored-not": "kept\n",
        **dict.fromkeys((".npmrc", "conf/.env.local", ".netrc", ".git/config", "conf/tls.key"), "s3cr3t"),
    }
    for name, text in texts.items():
        (home / name).write_text(text)
    (home / "run.sh").chmod(0o755)
    (home / "tool").write_bytes(binary)
    (home / "link").symlink_to("/etc/passwd")
    image = Image(reference(str(home), {}), str(home))
    made = job("mixed-ucx-gather")
    run.write_job(replace(made, nodes=(replace(made.nodes[0], image=image),)), result(str(run.log(made.label))))
    found = contents(*write_bundle(run.path, "mixed-ucx-gather", tmp_path / "b.tar.gz").files)
    packed = {name.partition("/images/")[2]: data for name, data in found.items() if "/images/" in name}
    assert packed == {
        "box/.dockerignore": texts[".dockerignore"].encode(),
        "box/Dockerfile": b"FROM scratch\nENV API_TOKEN=[redacted]\nCOPY run.sh /\n",
        "box/conf/server.pem": b"[redacted]\n",
        "box/ignored-not": b"kept\n",
        "box/run.sh": b"#!/bin/sh\ncurl -u me:[redacted] https://x\n",
        "box/tool": binary,
        "box.left-out.txt": b"Left out, as such files hold secrets:\n.netrc\n.npmrc\nconf/.env.local\nconf/tls.key\n",
    }


def test_what_is_too_large_is_split_at_line_ends(run: RunFolder, tmp_path: Path) -> None:
    dice = random.Random(1)
    lines = [dice.randbytes(500).hex().encode() + b"\n" for _ in range(3000)]
    run.log("mixed-ucx-gather").write_bytes(b"".join(lines))
    limit = 1 << 20
    made = write_bundle(run.path, "mixed-ucx-gather", tmp_path / "b.tar.gz", limit)
    assert [path.name for path in made.files] == [
        "b.tar.gz",
        *(f"b-logs-{number}.tar.gz" for number in range(1, len(made.files))),
    ]
    assert len(made.files) > 3
    assert max(path.stat().st_size for path in made.files) <= limit
    pieces = contents(*made.files[1:])
    assert b"".join(pieces[name] for name in sorted(pieces, key=lambda name: int(name.rpartition(".")[2]))) == b"".join(
        lines
    )
    assert all(piece.endswith(b"\n") for piece in pieces.values())


def test_what_is_not_there_is_a_usage_error(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bundle", str(run.path), "mixed-ucx-gathr"]) == 4
    assert "no cell and no signature 'mixed-ucx-gathr' in this run" in capsys.readouterr().err
    assert main(["bundle", str(tmp_path), KEY]) == 4
    assert "not the folder of a run" in capsys.readouterr().err
    with pytest.raises(UsageError, match="cannot be written"):
        write_bundle(run.path, KEY, tmp_path / "no" / "b.tar.gz")
    assert main(["bundle", str(run.path), KEY]) == 0
    said = capsys.readouterr().out
    assert said.startswith("SIGSEGV in libuct_rocm.so" if "in libuct" in said else "SIGSEGV")
    assert f"  {NAME}.tar.gz  (" in said
    assert "in the form of UCX: https://github.com/openucx/ucx/issues" in said
    assert (tmp_path / f"{NAME}.tar.gz").is_file()


def test_the_script_names_no_place_of_this_machine() -> None:
    argv = (
        "/opt/x/bin/mpirun",
        "python3",
        "/tmp/hetgpu-0a1b2c3d/programs/a.py",
        "/home/me/pytest_hetgpu/remote/b.py",
        "/tmp/hetgpu-mine",
    )
    nodes = tuple(replace(node, image=Image("hetgpu/x:1", "/home/me/containers/x")) for node in job().nodes)
    made = portable_job(replace(job(), command=Command(argv), nodes=nodes))
    assert made.command.argv == (
        "/opt/x/bin/mpirun",
        "python3",
        "/tmp/hetgpu/programs/a.py",
        "./programs/b.py",
        "/tmp/hetgpu-mine",
    )
    assert {node.image.folder for node in made.nodes if node.image} == {"images/x"}


def test_the_script_is_a_shell_script_whatever_is_in_it(tmp_path: Path) -> None:
    hostile = ("mpirun", "$(touch hacked)", "`touch hacked`", "'; touch hacked; '", "a\nb")
    text = render_script(replace(job(), command=Command(hostile, {"X": "$(touch hacked)"})), "KEY\n touch hacked")
    path = tmp_path / "reproduce.sh"
    path.write_text(text)
    assert subprocess.run(("sh", "-n", path), check=False).returncode == 0
    (tmp_path / "bin").mkdir()
    for name in ("mpirun", "docker", "ssh", "env"):
        fake = tmp_path / "bin" / name
        fake.write_text("#!/bin/sh\nexit 0\n")
        fake.chmod(0o755)
    subprocess.run(
        ("sh", path), cwd=tmp_path, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}, check=False, capture_output=True
    )
    assert not list(tmp_path.glob("hacked*"))
