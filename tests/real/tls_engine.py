"""The Docker engine of this machine behind TLS: a relay that asks for a client's certificate."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path


def certificates(folder: Path) -> None:
    """A CA, and what it signed for 127.0.0.1 (`server`) and for a client, named as the docker clients want it."""

    def openssl(*arguments: str) -> None:
        subprocess.run(("openssl", *arguments), cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-batch")
    openssl("req", "-x509", *key, "-keyout", "ca-key.pem", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test-ca")
    for name, prefix in (("server", "server-"), ("client", "")):
        extra = folder / f"{name}.ext"
        extra.write_text(f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={name}Auth\n")
        openssl("req", *key, "-keyout", f"{prefix}key.pem", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-extfile", str(extra), "-days", "2")
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{prefix}cert.pem")


@contextlib.contextmanager
def behind_tls(folder: Path, engine: str = "/var/run/docker.sock") -> Iterator[dict[str, str]]:
    """What the environment needs to reach the engine that way."""
    certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server-cert.pem", folder / "server-key.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = listening.accept()
                    threading.Thread(target=_relay, args=(context, plain, engine), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        port = listening.getsockname()[1]
        yield {
            "DOCKER_HOST": f"tcp://127.0.0.1:{port}",
            "DOCKER_TLS_VERIFY": "1",
            "DOCKER_CERT_PATH": str(folder),
        }


def _relay(context: ssl.SSLContext, plain: socket.socket, engine: str) -> None:
    with contextlib.suppress(OSError), contextlib.closing(plain):
        near = context.wrap_socket(plain, server_side=True)
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(engine)
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            far.shutdown(socket.SHUT_WR)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(64 << 10):
            sink.sendall(data)
