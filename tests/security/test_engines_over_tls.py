"""An engine elsewhere is spoken to over ssh or TLS only, and over TLS only with the one whose certificate is good."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.config.inventory.file import read as read_inventory
from pytest_hetgpu.errors import InventoryError, ProvisionError
from pytest_hetgpu.extensions.runtimes._docker.address import address
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine
from pytest_hetgpu.model.job import ConnectionInfo

asked: list[str] = []


class Answers(BaseHTTPRequestHandler):
    """As much of an engine as a client asks first."""

    def do_GET(self) -> None:
        asked.append(self.path)
        data = json.dumps({"ApiVersion": "1.41", "Version": "20.10"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """It stays silent."""


class Quiet(HTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A client that turns away is none."""


def certificates(folder: Path, name: str) -> Path:
    """A folder as DOCKER_CERT_PATH has it, of an authority of its own: certificates for `name` and for a client."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl")
    folder.mkdir()

    def made(*words: str) -> None:
        subprocess.run([openssl, *words], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    # Python 3.13 refuses an authority that does not say what its key is for.
    uses = ("-addext", "keyUsage=critical,keyCertSign")
    made("req", "-x509", *new, *uses, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=ca")
    for file, subject in (("server", name), ("client", "client")):
        out = "cert.pem" if file == "client" else "server.pem"
        key = "key.pem" if file == "client" else "server-key.pem"
        made("req", *new, "-keyout", key, "-out", f"{file}.csr", "-subj", f"/CN={subject}")
        (folder / "ext").write_text(f"subjectAltName=DNS:{subject}\n")
        signed = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2", "-extfile", "ext")
        made("x509", "-req", "-in", f"{file}.csr", *signed, "-out", out)
    return folder


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """An engine that only lets in whom its authority knows; its port, and the certificates."""
    held = certificates(tmp_path_factory.mktemp("tls") / "ours", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(held / "server.pem", held / "server-key.pem")
    context.load_verify_locations(held / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    server = Quiet(("127.0.0.1", 0), Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield server.server_port, held
    server.shutdown()
    server.server_close()
    serving.join()


@pytest.fixture(autouse=True)
def _told(monkeypatch: pytest.MonkeyPatch, engine: tuple[int, Path]) -> None:
    pytest.importorskip("docker")
    asked.clear()
    for name in ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(engine[1]))


def version(url: str) -> str:
    made = Engine(address("node0", ConnectionInfo(url), os.environ))
    try:
        with made.speaking("node0") as api:
            return str(api.version()["Version"])
    finally:
        made.close()


def test_the_right_engine_is_spoken_to(engine: tuple[int, Path]) -> None:
    assert version(f"tcp://localhost:{engine[0]}") == "20.10"
    assert asked


def test_an_engine_of_another_name_is_not(engine: tuple[int, Path]) -> None:
    with pytest.raises(ProvisionError, match=r"(?i)certificate"):
        version(f"tcp://127.0.0.1:{engine[0]}")
    assert asked == []


@pytest.mark.parametrize("verify", ["1", "0", "no"])
def test_an_engine_of_another_authority_is_not_and_no_word_switches_that_off(
    engine: tuple[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: str
) -> None:
    monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates(tmp_path / "theirs", "localhost")))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", verify)
    with pytest.raises(ProvisionError, match=r"(?i)certificate"):
        version(f"tcp://localhost:{engine[0]}")
    assert asked == []


@pytest.mark.parametrize("scheme", ["tcp", "https", "http"])
def test_without_tls_nothing_is_sent(engine: tuple[int, Path], monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "")
    with pytest.raises(ProvisionError, match=r"only over ssh or TLS|write ssh://"):
        version(f"{scheme}://localhost:{engine[0]}")
    monkeypatch.setenv("DOCKER_HOST", f"{scheme}://localhost:{engine[0]}")
    with pytest.raises(ProvisionError, match=r"only over ssh or TLS|write ssh://"):
        version("")
    assert asked == []


@pytest.mark.parametrize(
    "engine_url", ["tcp://h:2375", "tcp://h:2376", "http://h", "https://h", "ssh://-oProxyCommand=x"]
)
def test_an_inventory_names_engines_by_ssh_or_socket_alone(tmp_path: Path, engine_url: str) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(f"hardware: {{a: [{{address: h, engine: '{engine_url}'}}]}}\n")
    with pytest.raises(InventoryError, match="must be ssh://USER@HOST or unix:///PATH"):
        read_inventory(file)
