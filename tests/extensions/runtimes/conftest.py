"""A real sshd on loopback, and an ssh that trusts it alone."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from pytest_hetgpu.model.job import ConnectionInfo
from tests.extensions.runtimes.loopback import Loopback, free_port, keygen


@pytest.fixture(scope="session")
def openssh(lacking: Callable[[str, str], NoReturn]) -> Path:
    """The path of a real sshd; skips without it, ssh or ssh-keygen."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if sshd is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        lacking("ssh", "sshd, ssh or ssh-keygen is not installed: apt-get install openssh-server openssh-client")
    return Path(sshd)


@pytest.fixture(scope="module")
def loopback_sshd(openssh: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    folder = tmp_path_factory.mktemp("sshd")
    keygen(folder / "host_key")
    (folder / "authorized_keys").write_text(keygen(folder / "key"))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\nPermitRootLogin prohibit-password\n"
    )
    argv = [str(openssh), "-D", "-e", "-f", str(folder / "sshd_config")]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as sshd:
        assert sshd.stderr is not None
        for line in sshd.stderr:
            if b"Server listening" in line:
                break
        else:
            pytest.fail("sshd does not start")
        yield Loopback(folder, ConnectionInfo("", getpass.getuser(), port, str(folder / "key")))
        sshd.kill()


@pytest.fixture
def loopback(loopback_sshd: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loopback:
    """The sshd, its host key known; PATH leads to an ssh that reads no configuration but the tests'."""
    ssh = shutil.which("ssh")
    config = tmp_path / "ssh_config"
    config.write_text(
        f"UserKnownHostsFile {loopback_sshd.known_hosts}\nGlobalKnownHostsFile /dev/null\nIdentityFile none\n"
    )
    wrapper = tmp_path / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {ssh} -F {config} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    loopback_sshd.know()
    return loopback_sshd
