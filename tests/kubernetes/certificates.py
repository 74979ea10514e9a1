"""Keys, certificates and tokens of a Kubernetes for tests, made by openssl."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path

ISSUER = "https://kubernetes.default.svc"

_KEY = "-newkey rsa:2048 -nodes"


def authority(folder: Path) -> None:
    """A new authority, `ca.crt` and `ca.key`, and the key pair that signs tokens of service accounts, `sa.*`."""
    _openssl(folder, f"req -x509 {_KEY} -keyout ca.key -out ca.crt -days 2 -subj /CN=hetgpu")
    _openssl(folder, "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out sa.key")
    _openssl(folder, "pkey -in sa.key -pubout -out sa.pub")


def certificate(folder: Path, name: str, subject: str, *, addresses: str = "") -> None:
    """`NAME.crt` and `NAME.key` for `/O=GROUP/CN=USER`, or for a server at `addresses` (`IP:127.0.0.1`)."""
    folder.joinpath(f"{name}.ext").write_text(f"subjectAltName={addresses}\n" if addresses else "")
    _openssl(folder, f"req {_KEY} -keyout {name}.key -out {name}.csr -subj {subject}")
    by = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 2"
    _openssl(folder, f"x509 -req -in {name}.csr {by} -extfile {name}.ext -out {name}.crt")


def token(folder: Path, namespace: str, account: str, uid: str, *, seconds: float) -> str:
    """A token of a service account that is good for so many seconds; with less than none it has expired."""
    now = int(time.time())
    claims = {
        "aud": [ISSUER],
        "iss": ISSUER,
        "sub": f"system:serviceaccount:{namespace}:{account}",
        "iat": now - 7200,
        "nbf": now - 7200,
        "exp": now + int(seconds),
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}},
    }
    text = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    argv = ("openssl", "dgst", "-sha256", "-sign", "sa.key")
    done = subprocess.run(argv, cwd=folder, input=text.encode(), capture_output=True, check=True)
    return f"{text}.{_base64(done.stdout)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _openssl(folder: Path, words: str) -> None:
    done = subprocess.run(("openssl", *words.split()), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {words}: {done.stderr}")
