"""A container engine of a test's own, which may be stopped: that of this machine has other users."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from tests.real.nodes_here import docker

PATIENCE = 60.0
STEP = 0.05


class OwnEngine:
    """A dockerd whose data, state and socket are in one folder.

    Its networks are in a namespace of their own: the firewall of this machine's engine would let nothing through.
    """

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="he-"))
        self.url = f"unix://{self.home}/docker.sock"
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers."""
        places = ("--data-root", f"{self.home}/data", "--exec-root", f"{self.home}/exec")
        files = ("--pidfile", f"{self.home}/pid", "--host", self.url)
        alone = ("--bridge", "none", "--iptables=false", "--ip6tables=false")
        with (self.home / "log").open("ab") as log:
            command = ("unshare", "--net", "dockerd", *places, *files, *alone)
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + PATIENCE
        while subprocess.run(("docker", "-H", self.url, "version"), capture_output=True, check=False).returncode:
            log_text = (self.home / "log").read_text(errors="replace")
            assert self._daemon.poll() is None, log_text[-2000:]
            assert time.monotonic() < deadline, log_text[-2000:]
            time.sleep(STEP)

    def load(self, image: str) -> None:
        """Copies an image of this machine's engine."""
        with subprocess.Popen(("docker", "save", image), stdout=subprocess.PIPE) as saving:
            subprocess.run(("docker", "-H", self.url, "load"), stdin=saving.stdout, check=True, capture_output=True)
        assert saving.returncode == 0

    def stop(self) -> None:
        """As an administrator does it: containers are stopped with it."""
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGTERM)
        try:
            self._daemon.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait(PATIENCE)

    def kill(self) -> None:
        """By SIGKILL: what runs in its containers lives on for now."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait(PATIENCE)

    def close(self) -> None:
        """Ends it and whatever it left: processes, mounts, files."""
        self.stop()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if any(str(self.home) in word for word in process.cmdline()):
                    process.kill()
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            place = line.split()[1]
            if Path(place).is_relative_to(self.home):
                subprocess.run(("umount", "-l", place), check=False, capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)


def image_here(cell_image: Path) -> str:
    """The reference of the image that nodes are made of, on this machine's engine."""
    from pytest_hetgpu.extensions.runtimes.containers.build_context import reference

    return reference(str(cell_image), {"BASE": "hetgpu-base:bookworm"})


def has(image: str) -> bool:
    """Whether this machine's engine has an image."""
    return bool(docker("image", "ls", "-q", image))


def may_have_one() -> bool:
    """Whether an engine can be started here."""
    return os.geteuid() == 0 and shutil.which("dockerd") is not None
